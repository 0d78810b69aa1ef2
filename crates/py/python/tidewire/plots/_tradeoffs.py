"""Delay against overhead: what a probe predicts, what an envelope has, what replays of a recording gave.

`plots` and `python -m tidewire.plots` call it, with lines of JSON that the command wrote or with rows of
dictionaries.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain, cycle
from pathlib import Path
from typing import Any, TypeAlias

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tidewire.errors import PlotError
from tidewire.plots._canvas import canvas, colours, finish

#: A file of JSON lines, or the objects of its lines.
Lines: TypeAlias = "str | Path | Iterable[Mapping[str, Any]]"

#: Quantiles of an event `prediction` or `replay`, and the style of their lines.
QUANTILES = {"p50": ":", "p95": "--", "p99": "-"}
OVERHEAD = "overhead [repairs per source symbol, %]"
SENT = "overhead [bytes sent beyond the application's, %]"
DELAY = "in-order delay beyond the one-way time [ms]"


def probe(lines: Lines) -> Figure:
    """Return the predicted delay of a path over the overhead.

    Args:
        lines: what ``tidewire probe --json`` printed. The curves are those of the code; the two points are
            what the transport would do (``chosen``) and plain retransmission (``asking``).

    Raises:
        PlotError: there is no prediction: without losses, or because the probe failed.
    """
    events = read(lines)
    points = [event for event in events if event.get("event") == "prediction"]
    if not points:
        raise PlotError("no event `prediction`: give what `tidewire probe --json` printed")
    figure, axes = canvas((7, 4.5))
    code = [point for point in points if point["name"] == "code"]
    others = [point for point in points if point["name"] != "code"]
    for quantile, style in QUANTILES.items():
        if code:
            across = [100 * point["overhead"] for point in code]
            axes.plot(
                across, [point[f"{quantile}_ms"] for point in code], style, color="tab:blue", label=quantile
            )
    for point, mark, colour in zip(others, cycle("os^v"), colours(len(others) + 1)[1:], strict=False):
        label = f"{point['name']}, p99"
        axes.plot([100 * point["overhead"]], [point["p99_ms"]], mark, color=colour, label=label)
    axes.set_title(_path(events), fontsize=9)
    return _plane(figure, axes, OVERHEAD)


def _path(events: Iterable[Mapping[str, Any]]) -> str:
    """What the light load of a probe measured, in words."""
    light = next(
        (event for event in events if event.get("event") == "phase" and event["name"] == "light"), None
    )
    if light is None:
        return "predicted"
    loss, bursts, rtt = light["medium_loss"], light["bursts"]["mean"], light["rtt_ms"]
    trip = f", round trip {rtt['p50']:.1f} ms" if rtt is not None else ""
    return f"predicted for {100 * loss:.2f} % loss in runs of {bursts:.1f}{trip}"


def envelope(
    points: Lines, cell: str | None = None, *, part: str = "steady", delay: str = "p99_ms"
) -> Figure:
    """Return delay over bytes sent for every policy of a cell, and their envelope (docs/envelope.md).

    Args:
        points: what ``--json FILE`` of the example ``grid`` wrote. Rows of a sweep do as well, with the
            columns ``family``, ``sent_per_byte`` and the delay.
        cell: which cell of the grid; it may be left out if there is one.
        part: ``steady`` or ``whole``: from the third second on, or from the beginning.
        delay: ``p99_ms`` or ``mean_ms``, or the column of a sweep.

    Raises:
        PlotError: no such cell, or several and none named.
    """
    rows = read(points)
    cells = list(dict.fromkeys(row["cell"] for row in rows if "cell" in row))
    if (cell is None and len(cells) > 1) or (cell is not None and cell not in cells):
        raise PlotError(f"cell {cell!r}: name one of {', '.join(cells)}")
    families: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        found = row.get(part, row)
        if cell in (None, row.get("cell")) and found[delay] is not None:
            families[str(row["family"])].append((100 * (found["sent_per_byte"] - 1), found[delay]))
    if not families:
        raise PlotError("no point has a delay: give rows with `family`, `sent_per_byte` and a delay")
    figure, axes = canvas((7, 4.5))
    for (family, own), colour in zip(sorted(families.items()), colours(len(families)), strict=True):
        across, up = zip(*sorted(own), strict=True)
        mark, size = ("*", 11) if family == "adaptive" else ("o", 3)
        axes.plot(across, up, "-", marker=mark, markersize=size, linewidth=1, color=colour, label=family)
    others = sorted(chain.from_iterable(own for family, own in families.items() if family != "adaptive"))
    if others:
        across, up = zip(*_least(others), strict=True)
        axes.step(across, up, where="post", color="black", linewidth=2, alpha=0.4, label="envelope")
    axes.set_title(cell or (cells[0] if cells else ""), fontsize=9)
    return _plane(figure, axes, SENT)


def _least(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points, from left to right, below which no point further left is."""
    least: list[tuple[float, float]] = []
    for x, y in points:
        if not least or y < least[-1][1]:
            least.append((x, y))
    return least


def recording(lines: Lines) -> Figure:
    """Return delay over overhead of a recorded flow and its replays (docs/recording.md).

    Args:
        lines: what ``tidewire replay FILE --json`` printed.

    Raises:
        PlotError: there is no event ``replay``.
    """
    runs = [event for event in read(lines) if event.get("event") == "replay"]
    if not runs:
        raise PlotError("no event `replay`: give what `tidewire replay FILE --json` printed")
    figure, axes = canvas((7, 4.5))
    for run, plain in zip(runs, colours(len(runs)), strict=True):
        delay, across = run["delay_ms"], 100 * run["overhead"]
        colour = "black" if run["name"] == "recorded" else plain
        name = run["name"] + (" (not all bytes arrived)" if run["done"] is False else "")
        axes.plot([across] * 2, [delay["p50"], delay["p99"]], "-", color=colour, linewidth=1)
        axes.plot([across], [delay["p50"]], "_", color=colour, markersize=9)
        axes.plot(
            [across], [delay["p99"]], "*" if run["name"] == "recorded" else "o", color=colour, label=name
        )
    axes.set_title("p50 (bar) to p99 (mark): recorded, and replayed", fontsize=9)
    return _plane(figure, axes, SENT)


def _plane(figure: Figure, axes: Axes, across: str) -> Figure:
    axes.set(xlabel=across, ylabel=DELAY)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=7)
    return finish(figure)


def read(lines: Lines) -> list[Mapping[str, Any]]:
    """Return the objects of JSON lines.

    Raises:
        PlotError: a line is no JSON object; the text names it.
    """
    if not isinstance(lines, str | Path):
        return list(lines)
    found: list[Mapping[str, Any]] = []
    for number, line in enumerate(Path(lines).read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            event = json.loads(line)
        except ValueError as error:
            raise PlotError(f"{lines}, line {number}: no JSON: {error}") from error
        if not isinstance(event, dict):
            raise PlotError(f"{lines}, line {number}: no JSON object: give lines that --json printed")
        found.append(event)
    return found
