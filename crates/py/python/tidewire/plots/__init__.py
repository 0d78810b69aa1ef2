"""Figures: those of `papers/`, and delay against overhead of a probe, an envelope and a recording.

It needs matplotlib, which the extra ``plots`` brings. Each function returns a `matplotlib.figure.Figure`, to
show in a notebook or to :func:`save`::

    from tidewire import plots

    plots.save(plots.probe("probe.jsonl"), "probe.svg")   # tidewire probe LINK --json > probe.jsonl

``python -m tidewire.plots papers/NAME`` draws all figures of a paper into its folder ``plots``, and
``python -m tidewire.plots FILE FIGURE.svg`` the JSON lines of a probe, a replay or a grid.
"""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from tidewire.plots._canvas import save
from tidewire.plots._curves import paper
from tidewire.plots._tradeoffs import envelope, probe, read, recording

__all__ = ["draw", "envelope", "paper", "probe", "recording", "save"]


def draw(path: str | Path) -> Figure:
    """Return the figure of a file of JSON lines, whatever it has: a probe, a replay, or points of one cell.

    Raises:
        PlotError: it has none of them.
    """
    lines = read(path)
    if any("family" in line for line in lines):
        return envelope(lines)
    return recording(lines) if any(line.get("event") == "replay" for line in lines) else probe(lines)
