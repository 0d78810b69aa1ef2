"""Figures without a window, and files that are equal where the data are.

The other modules of `plots` use it. Invariant: nothing global of matplotlib changes, so a program may
draw its own figures beside these.
"""

from __future__ import annotations

from itertools import cycle, islice
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tidewire.errors import PlotError

#: With more curves than this the legend stands beside the axes, and colours are of the longer palette.
#: Chosen: a legend of more lines hides the curves.
CROWD = 20


def canvas(size: tuple[float, float]) -> tuple[Figure, Axes]:
    """Return a figure of this size in inches, and its axes with a grid."""
    figure = Figure(figsize=size)
    axes = figure.subplots()
    axes.grid(alpha=0.3)
    return figure, axes


def colours(count: int) -> list[Any]:
    """Return as many colours. Those of more than ten repeat, those of a crowd after twenty."""
    palette: Any = matplotlib.colormaps["tab20" if count > CROWD else "tab10"]
    return list(islice(cycle(palette.colors), count))


def finish(figure: Figure) -> Figure:
    """Lay out a figure that has everything."""
    figure.tight_layout()
    return figure


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure into a file; its ending says the format, such as ``.svg``, ``.png`` or ``.pdf``.

    Equal data give equal SVG files: they have neither a date nor random names.

    Raises:
        PlotError: matplotlib does not know the ending.
        OSError: the file cannot be written.
    """
    path = Path(path)
    has_date = path.suffix in (".svg", ".pdf")
    with matplotlib.rc_context({"svg.hashsalt": path.stem}):
        try:
            figure.savefig(
                path,
                metadata={"Date" if path.suffix == ".svg" else "CreationDate": None} if has_date else None,
            )
        except ValueError as error:
            raise PlotError(f"{path}: {error}") from error
