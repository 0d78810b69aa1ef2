#!/usr/bin/env python3
"""Draws a paper's data (`tidewire papers NAME`) as SVG: python3 papers/plot.py papers/NAME. Needs matplotlib."""

import csv
import sys
from collections import defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

LINES = {"model": "-", "printed": ":", "ideal": "--", "code": "-", "lab": ":", "kernel-tcp": "-."}
MARKS = {"model": "", "printed": "", "ideal": "", "code": "o", "lab": "x", "kernel-tcp": ""}
# What lies beyond of a histogram is said in its legend: TCP has delays of seconds.
LONGEST = {"figure-1": 400}
LINEAR = {
    "streaming-code-5g": {"figure-1"},
    "sphinx": {"figure-7", "figure-9", "figure-9-200", "figure-9-lab", "figure-11", "pairs"},
    "rcdp": {"figure-4", "figure-5", "figure-6", "estimator", "wire-rate"},
    "fairness": {
        *("figure-4", "figure-5", "figure-6", "figure-8", "figure-9", "four-flows", "four-flows-loss", "links"),
        *("rules", "cost", "cost-cubic", "cost-wide"),
    },
    "variable-bucket": {"links", "bound"},
}
# With more curves than this the legend stands beside the axes, and colours are of the longer palette.
CROWD = 20
# Abscissa and the labels of both axes, by paper and figure.
STREAMING_CODE = {
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
SPHINX = {
    "figure-7": ("loss", "loss rate", "repairs per source symbol, or share of blocks"),
    "figure-9": ("loss", "loss rate", "packets of 1,000 bytes per second"),
    "figure-9-200": ("loss", "loss rate", "packets of 1,000 bytes per second"),
    "figure-10": ("loss", "loss rate", "time per block of 100 kB [ms]"),
    "figure-10-200": ("loss", "loss rate", "time per block of 100 kB [ms]"),
    "figure-11": ("parameter", "time [s]", "buffered video [s]"),
    "figure-9-lab": ("loss", "loss rate, round trip 10 ms", "packets of 1,000 bytes per second"),
    "figure-10-lab": ("loss", "loss rate, round trip 10 ms", "time of an offered block of 100 kB, p99 [ms]"),
    "pairs": ("parameter", "pair", "share of what the link delivers"),
}
RCDP = {
    "figure-4": ("parameter", "bandwidth [Mbit/s]", "throughput [Mbit/s]"),
    "figure-5": ("parameter", "loss rate [%]", "throughput [Mbit/s]"),
    "figure-6": ("parameter", "size of the content [MB]", "throughput [Mbit/s]"),
    "wire-rate": ("parameter", "time [s]", "rate on the wire [Mbit/s]"),
    "estimator": ("parameter", "constant rate beside it, share of the link", "rate, share of the link"),
}
FAIRNESS = {
    "figure-2": ("parameter", "time [s]", "window [segments], drops of the queue since 10 s"),
    "figure-4": ("parameter", "redundancy R", "goodput [Mbit/s]"),
    "figure-5": ("parameter", "generation g [symbols]", "goodput [Mbit/s]"),
    "figure-6": ("loss", "loss rate p", "goodput [Mbit/s]"),
    "figure-8": ("parameter", "redundancy R", "index, or lambda"),
    "figure-9": ("loss", "loss rate p", "index, or lambda"),
    "four-flows": ("parameter", "redundancy R", "goodput [Mbit/s], or index"),
    "four-flows-loss": ("loss", "loss rate p", "goodput [Mbit/s], or index"),
    "batch-delay": ("parameter", "generation or batch g [symbols]", "mean delay [ms]"),
    "batch-goodput": ("parameter", "generation or batch g [symbols]", "goodput [Mbit/s]"),
    "links": ("parameter", "queue [packets]", "goodput without code, share of x'"),
    "rules": ("loss", "loss rate p", "J'"),
    "cost": ("loss", "loss rate p", "goodput of NewReno, share of x'"),
    "cost-cubic": ("loss", "loss rate p", "goodput of CUBIC, share of x'"),
    "cost-wide": ("loss", "loss rate p", "goodput of TCP, share of x'"),
}
# Only the curves whose names begin with this are drawn.
PREFIXES = {"rules": "J' ", "cost": "kept", "cost-cubic": "kept", "cost-wide": "kept"}
VARIABLE_BUCKET = {
    "figure-3": ("parameter", "time [s]", "largest latency of a second [ms], packets"),
    "figure-6": ("parameter", "time [s]", "zero-payload packets, window [segments]"),
    "figure-7": ("parameter", "time [s]", "zero-payload packets, window [segments]"),
    "figure-8": ("parameter", "time [s]", "largest latency of a second [ms]"),
    "figure-9": ("parameter", "time [s]", "largest latency of a second [ms]"),
    "figure-10": ("parameter", "time [s]", "largest jitter of a second [ms]"),
    "links": ("loss", "loss rate of a hop", "share saved of the 95th percentile"),
    "gamma": ("parameter", "Gamma", "95th percentile [ms]"),
    "cap": ("parameter", "cap of the bucket [segments]", "95th percentile [ms], or count"),
    "bound": ("parameter", "segments that wait", "best bucket [segments]"),
}
AXES = {
    "streaming-code-5g": STREAMING_CODE,
    "sphinx": SPHINX,
    "rcdp": RCDP,
    "fairness": FAIRNESS,
    "variable-bucket": VARIABLE_BUCKET,
}
# The loss of these figures is in the abscissa too, so it does not tell curves apart.
LOSS_IS_PARAMETER = {("rcdp", "figure-5")}

# The plots that compare lab and simulator at one round trip, and what they draw.
BOTH = {"figure-9-lab": "value", "figure-10-lab": "p99"}
ROUND_TRIP = " 10 ms"


def curves(paths, abscissa, ordinate, prefix, ending, is_loss):
    """Points by (curve, how, loss, burst) of the curves with this prefix and ending; a curve of one point is a
    level. `is_loss` says that the abscissa is the loss, which then does not tell curves apart."""
    found = defaultdict(list)
    for path in paths:
        with open(path, newline="") as file:
            for row in csv.DictReader(file):
                if not (row["curve"].startswith(prefix) and row["curve"].endswith(ending)):
                    continue
                loss = None if is_loss else float(row["loss"])
                key = (row["curve"], row["how"], loss, row["burst"])
                found[key].append((float(row[abscissa]), float(row[ordinate])))
    return found


def sources(folder, stem):
    """A figure's data, and what the lab adds to it, if it was measured."""
    data, lab = folder / "data", folder / "lab"
    if stem in BOTH:
        figure = stem.removesuffix("-lab")
        return [data / f"{figure}.csv", *sorted(lab.glob(f"{figure}-*-loss.csv"), reverse=True)]
    measured = (lab / f"{stem}{part}.csv" for part in ("", "-tcp", "-high-loss"))
    return [data / f"{stem}.csv"] + [path for path in measured if path.exists()]


def draw(folder, stem, target):
    paper = folder.name
    abscissa, below, beside = AXES[paper][stem]
    ending = ROUND_TRIP if stem in BOTH else ""
    prefix = PREFIXES.get(stem, "") if paper == "fairness" else ""
    is_loss = abscissa == "loss" or (paper, stem) in LOSS_IS_PARAMETER
    found = curves(sources(folder, stem), abscissa, BOTH.get(stem, "value"), prefix, ending, is_loss)
    crowded = len(found) > CROWD
    palette = plt.get_cmap("tab20" if crowded else "tab10").colors
    figure, axes = plt.subplots(figsize=(10, 5) if crowded else (7, 4.5))
    longest = LONGEST.get(stem) if paper == "streaming-code-5g" else None
    colours = {}
    for (curve, how, loss, burst), points in sorted(found.items()):
        name = curve + (f", {100 * loss:g} %" if loss is not None else "") + (f" x {float(burst):g}" if burst else "")
        colour = colours.setdefault(name, palette[len(colours) % len(palette)])
        beyond = sum(value for x, value in points if longest is not None and x >= longest)
        label = f"{name} ({how}" + (f", {100 * beyond:.2g} % beyond)" if beyond > 0 else ")")
        style = {"color": colour, "linestyle": LINES[how], "label": label, "linewidth": 1}
        if len(points) == 1 and abscissa == "parameter":
            axes.axhline(points[0][1], **style)
        else:
            axes.plot(*zip(*points), marker=MARKS[how], markersize=3, **style)
    if stem not in LINEAR[paper]:
        axes.set_yscale("log")
    if paper == "streaming-code-5g" and stem in ("figure-2", "figure-9"):
        axes.set_xscale("log", base=2)
    if (paper, stem) == ("rcdp", "figure-6"):
        axes.set_xscale("log")
    if longest is not None:
        axes.set_xlim(0, longest)
    axes.set(xlabel=below, ylabel=beside)
    axes.grid(alpha=0.3)
    if crowded:
        axes.legend(fontsize=6, loc="center left", bbox_to_anchor=(1, 0.5))
    else:
        axes.legend(fontsize=5, ncol=2)
    save(figure, stem, target)


def save(figure, stem, target):
    figure.tight_layout()
    # No date, no random ids: equal data, equal files.
    matplotlib.rcParams["svg.hashsalt"] = stem
    figure.savefig(target, metadata={"Date": None})
    plt.close(figure)


def draw_use(folder, target):
    """Figure 7 of `fairness`: what two flows use of the link, as bars."""
    figure, axes = plt.subplots(figsize=(5, 4))
    bottom = defaultdict(float)
    colours = {"flow 1": "tab:blue", "flow 2": "tab:orange", "not used": "lightgrey"}
    with open(folder / "data" / "figure-7.csv", newline="") as file:
        for row in csv.DictReader(file):
            bar, mbit, name = float(row["parameter"]), float(row["value"]), row["curve"]
            label = name if bar == 1 else None
            axes.bar(bar, mbit, bottom=bottom[bar], color=colours[name], label=label, width=0.6)
            bottom[bar] += mbit
    axes.set_xticks([1, 2], ["flow 1 coded", "none coded"])
    axes.set(ylabel="goodput [Mbit/s]")
    axes.legend(fontsize=7)
    save(figure, "figure-7", target)


# The measures of `compare`: the end of their curves, the column, the label, and whether the axis is a logarithm.
COMPARED = [
    ("goodput", "rate", "file: share of what\nthe link delivers", False),
    ("records", "p99", "records: delay p99 [ms]", True),
    ("cost", "value", "file: bytes sent per byte", True),
    ("tunnel", "rate", "CUBIC in a tunnel: share", False),
]


def draw_compared(folder, target):
    """Every profile on every link of `compare`: one panel for each measure."""
    with open(folder / "data" / "profiles.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    names = list(dict.fromkeys(row["curve"].split(" ")[0] for row in rows))
    figure, panels = plt.subplots(len(COMPARED), 1, figsize=(9, 10), sharex=True)
    for axes, (ending, column, label, is_log) in zip(panels, COMPARED):
        for n, name in enumerate(names):
            points = [(float(row["parameter"]), row[column]) for row in rows if row["curve"] == f"{name} {ending}"]
            points = [(x + 0.09 * (n - len(names) / 2), float(y)) for x, y in points if y]
            if points:
                axes.plot(*zip(*points), "o", markersize=5, label=name, color=plt.get_cmap("tab10").colors[n])
        if is_log:
            axes.set_yscale("log")
        axes.set(ylabel=label)
        axes.grid(alpha=0.3)
    panels[-1].set(xlabel="link, as numbered in the table")
    panels[-1].legend(fontsize=7, ncol=len(names))
    save(figure, "profiles", target)


def main():
    folder = Path(sys.argv[1]).resolve()
    plots = folder / "plots"
    plots.mkdir(exist_ok=True)
    if folder.name == "compare":
        return draw_compared(folder, plots / "profiles.svg")
    if folder.name == "fairness":
        draw_use(folder, plots / "figure-7.svg")
    for stem in AXES[folder.name]:
        draw(folder, stem, plots / f"{stem}.svg")


if __name__ == "__main__":
    main()
