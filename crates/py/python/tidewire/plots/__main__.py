"""`python -m tidewire.plots`: figures of a paper's folder, or of one file of JSON lines."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tidewire.errors import PlotError
from tidewire.plots import draw, paper, save


def main(arguments: list[str] | None = None) -> int:
    """Draw, and return the exit code."""
    parser = argparse.ArgumentParser("python -m tidewire.plots", description=__doc__)
    parser.add_argument(
        "source", type=Path, metavar="FOLDER|FILE", help="papers/NAME, or a file of JSON lines"
    )
    parser.add_argument(
        "target",
        type=Path,
        nargs="?",
        help="folder of the figures [default: FOLDER/plots], or file of the one figure [default: FILE.svg]",
    )
    options = parser.parse_args(arguments)
    source: Path = options.source
    try:
        if not source.is_dir():
            save(draw(source), options.target or source.with_suffix(".svg"))
            return 0
        folder: Path = options.target or source / "plots"
        folder.mkdir(exist_ok=True)
        for name, figure in paper(source):
            save(figure, folder / f"{name}.svg")
    except (PlotError, OSError) as error:
        print(f"plots: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
