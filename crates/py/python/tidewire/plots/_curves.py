"""The figures of `papers/`: curves, bars and panels from the data that `tidewire-lab papers NAME` writes.

`plots` and `python -m tidewire.plots` call it. Invariant: a figure is a function of its data files alone.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

from tidewire.errors import PlotError
from tidewire.plots._axes import FIGURES, Axes
from tidewire.plots._canvas import CROWD, canvas, colours, finish

#: The line of each way by which a point was found (papers/README.md), and its mark.
LINES = {"model": "-", "printed": ":", "ideal": "--", "code": "-", "lab": ":", "kernel-tcp": "-."}
MARKS = {"model": "", "printed": "", "ideal": "", "code": "o", "lab": "x", "kernel-tcp": ""}
#: The measures of `compare`: the end of their curves, the column, the label, and whether the axis is a
#: logarithm.
COMPARED = [
    ("goodput", "rate", "file: share of what\nthe link delivers", False),
    ("records", "p99", "records: delay p99 [ms]", True),
    ("cost", "value", "file: bytes sent per byte", True),
    ("tunnel", "rate", "CUBIC in a tunnel: share", False),
]


class Curve(NamedTuple):
    """What tells one curve from another."""

    name: str
    how: str
    #: None where the abscissa is the loss.
    loss: float | None
    burst: str

    @property
    def label(self) -> str:
        """Its name with the losses."""
        loss = f", {100 * self.loss:g} %" if self.loss is not None else ""
        return self.name + loss + (f" x {float(self.burst):g}" if self.burst else "")


def paper(folder: str | Path) -> Iterator[tuple[str, Figure]]:
    """Yield every figure of a paper, with its name.

    Args:
        folder: the folder of the paper, such as ``papers/rcdp``; its ``data`` has the points, and its ``lab``
            those that were measured in real time.

    Raises:
        PlotError: the folder is not one of a paper, or its data are missing.
    """
    folder = Path(folder).resolve()
    if folder.name == "compare":
        yield "profiles", _profiles(folder / "data" / "profiles.csv")
        return
    if folder.name not in FIGURES:
        known = ", ".join(sorted({*FIGURES, "compare"}))
        raise PlotError(f"{folder} is not the folder of a paper with figures: they are {known}")
    if folder.name == "fairness":
        yield "figure-7", _use(folder / "data" / "figure-7.csv")
    for name, axes in FIGURES[folder.name].items():
        yield name, curves(_sources(folder, name), axes)


def curves(paths: Iterable[Path], axes: Axes) -> Figure:
    """Return the curves of these data files. A curve of one point is a level."""
    found: dict[Curve, list[tuple[float, float]]] = defaultdict(list)
    for path in paths:
        for row in _rows(path):
            if row["curve"].startswith(axes.prefix) and row["curve"].endswith(axes.ending):
                loss = None if axes.is_loss or axes.across == "loss" else float(row["loss"])
                point = float(row[axes.across]), float(row[axes.column])
                found[Curve(row["curve"], row["how"], loss, row["burst"])].append(point)
    is_crowded = len(found) > CROWD
    figure, drawn = canvas((10, 5) if is_crowded else (7, 4.5))
    palette, of_labels = colours(len(found)), dict[str, object]()
    for curve, points in sorted(found.items()):
        colour = of_labels.setdefault(curve.label, palette[len(of_labels)])
        beyond = sum(value for x, value in points if axes.longest is not None and x >= axes.longest)
        note = f", {100 * beyond:.2g} % beyond)" if beyond > 0 else ")"
        style: dict[str, object] = {
            "color": colour,
            "linestyle": LINES[curve.how],
            "label": f"{curve.label} ({curve.how}{note}",
            "linewidth": 1,
        }
        if len(points) == 1 and axes.across == "parameter":
            drawn.axhline(points[0][1], **style)  # type: ignore[arg-type]
        else:
            across, up = zip(*points, strict=True)
            drawn.plot(across, up, marker=MARKS[curve.how], markersize=3, **style)  # type: ignore[arg-type]
    if "y" in axes.log:
        drawn.set_yscale("log")
    if "x" in axes.log:
        drawn.set_xscale("log", base=axes.base)
    if axes.longest is not None:
        drawn.set_xlim(0, axes.longest)
    drawn.set(xlabel=axes.below, ylabel=axes.beside)
    if is_crowded:
        drawn.legend(fontsize=6, loc="center left", bbox_to_anchor=(1, 0.5))
    else:
        drawn.legend(fontsize=5, ncol=2)
    return finish(figure)


def _sources(folder: Path, name: str) -> list[Path]:
    """Return a figure's data, and what the lab adds to it, if it was measured."""
    data, lab = folder / "data", folder / "lab"
    if name.endswith("-lab"):
        figure = name.removesuffix("-lab")
        return [data / f"{figure}.csv", *sorted(lab.glob(f"{figure}-*-loss.csv"), reverse=True)]
    measured = (lab / f"{name}{part}.csv" for part in ("", "-tcp", "-high-loss"))
    return [data / f"{name}.csv", *(path for path in measured if path.exists())]


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))
    except FileNotFoundError as error:
        raise PlotError(f"{path} is missing: run `tidewire-lab papers {path.parents[1].name}`") from error


def _use(path: Path) -> Figure:
    """Figure 7 of `fairness`: what two flows use of the link, as bars."""
    figure = Figure(figsize=(5, 4))
    axes = figure.subplots()
    bottom: dict[float, float] = defaultdict(float)
    fills = {"flow 1": "tab:blue", "flow 2": "tab:orange", "not used": "lightgrey"}
    for row in _rows(path):
        bar, mbit, name = float(row["parameter"]), float(row["value"]), row["curve"]
        axes.bar(
            bar, mbit, bottom=bottom[bar], color=fills[name], label=name if bar == 1 else None, width=0.6
        )
        bottom[bar] += mbit
    axes.set_xticks([1, 2], ["flow 1 coded", "none coded"])
    axes.set(ylabel="goodput [Mbit/s]")
    axes.legend(fontsize=7)
    return finish(figure)


def _profiles(path: Path) -> Figure:
    """Every profile on every link of `compare`: one panel for each measure."""
    rows = _rows(path)
    names = list(dict.fromkeys(row["curve"].split(" ")[0] for row in rows))
    figure = Figure(figsize=(9, 10))
    panels = figure.subplots(len(COMPARED), 1, sharex=True)
    palette = colours(len(names))
    for axes, (ending, column, label, is_log) in zip(panels, COMPARED, strict=True):
        for n, name in enumerate(names):
            own = [row for row in rows if row["curve"] == f"{name} {ending}" and row[column]]
            # Side by side, so that equal points do not hide each other.
            across = [float(row["parameter"]) + 0.09 * (n - len(names) / 2) for row in own]
            if own:
                up = [float(row[column]) for row in own]
                axes.plot(across, up, "o", markersize=5, label=name, color=palette[n])
        if is_log:
            axes.set_yscale("log")
        axes.set(ylabel=label)
        axes.grid(alpha=0.3)
    panels[-1].set(xlabel="link, as numbered in the table")
    panels[-1].legend(fontsize=7, ncol=len(names))
    return finish(figure)
