#!/usr/bin/env python3
"""Draws a paper's data (`tidewire papers NAME`) as SVG: python3 papers/plot.py papers/NAME. Needs matplotlib."""

import csv
import sys
from collections import defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

LINES = {"model": "-", "printed": ":", "ideal": "--", "code": "-"}
MARKS = {"model": "", "printed": "", "ideal": "", "code": "o"}
# Abscissa, its label, and whether the figure is of delays in slots; all others are in milliseconds.
AXES = {
    "figure-1": ("parameter", "in-order delay [ms]", "fraction of symbols"),
    "figure-2": ("parameter", "block size k", "mean in-order delay [ms]"),
    "figure-5": ("rate", "code rate 1 - 1/l", "mean in-order delay [slots]"),
    "figure-6": ("rate", "code rate 1 - 1/l", "mean in-order delay [slots]"),
    "figure-7a": ("rate", "code rate", "mean in-order delay [slots]"),
    "figure-7b": ("rate", "code rate", "mean in-order delay [slots]"),
    "figure-8": ("rate", "effective rate", "mean in-order delay [ms]"),
    "figure-9": ("parameter", "block size k", "mean in-order delay [ms]"),
    "figure-10": ("rate", "effective rate", "mean in-order delay [ms]"),
}


def curves(path, abscissa):
    """Points by (curve, how, loss, burst); a curve of one point is a level."""
    found = defaultdict(list)
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            key = (row["curve"], row["how"], float(row["loss"]), row["burst"])
            found[key].append((float(row[abscissa]), float(row["value"])))
    return found


def draw(path, target):
    abscissa, below, beside = AXES[path.stem]
    figure, axes = plt.subplots(figsize=(7, 4.5))
    found = curves(path, abscissa)
    colours = {}
    for (curve, how, loss, burst), points in sorted(found.items()):
        name = f"{curve}, {100 * loss:g} %" + (f" x {float(burst):g}" if burst else "")
        colour = colours.setdefault(name, f"C{len(colours) % 10}")
        style = {"color": colour, "linestyle": LINES[how], "label": f"{name} ({how})", "linewidth": 1}
        if len(points) == 1 and abscissa == "parameter":
            axes.axhline(points[0][1], **style)
        else:
            axes.plot(*zip(*points), marker=MARKS[how], markersize=3, **style)
    if path.stem != "figure-1":
        axes.set_yscale("log")
    if path.stem in ("figure-2", "figure-9"):
        axes.set_xscale("log", base=2)
    axes.set(xlabel=below, ylabel=beside)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=5, ncol=2)
    figure.tight_layout()
    # No date, no random ids: equal data, equal files.
    matplotlib.rcParams["svg.hashsalt"] = path.stem
    figure.savefig(target, metadata={"Date": None})
    plt.close(figure)


def main():
    folder = Path(sys.argv[1])
    plots = folder / "plots"
    plots.mkdir(exist_ok=True)
    for path in sorted((folder / "data").glob("figure-*.csv")):
        draw(path, plots / f"{path.stem}.svg")


if __name__ == "__main__":
    main()
