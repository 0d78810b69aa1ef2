"""The experiments of `papers/`, as sweeps: what `tidewire-lab papers NAME --executor EXECUTOR` starts.

The experiments are in the command. A cell runs there, as ``tidewire-lab papers NAME --only FIGURE --cell N
--json``, so the workers need the command and this package. Invariant: the lines are the command's own,
unchanged and in the order of the cells, whatever runs them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidewire.errors import SweepError
from tidewire.sweeps import Sweep, sweep

__all__ = ["COMMAND_VARIABLE", "figure", "run_cell"]

#: Names the command where a worker has it in another place than the caller.
COMMAND_VARIABLE = "TIDEWIRE_COMMAND"


def run_cell(cell: Mapping[str, Any]) -> dict[str, Any]:
    """Run one cell, and return its rows as ``lines`` of JSON. The experiment of :func:`figure`.

    Raises:
        SweepError: the command failed; the text is what it said.
    """
    command = os.environ.get(COMMAND_VARIABLE, cell["command"])
    arguments = ["papers", cell["paper"], "--only", cell["figure"], "--cell", str(cell["cell"]), "--json"]
    if cell["full"]:
        arguments.append("--full")
    ran = subprocess.run([command, *arguments], capture_output=True, text=True, encoding="utf-8", check=False)
    if ran.returncode != 0:
        said = (ran.stderr + ran.stdout).strip()
        raise SweepError(f"{command} {' '.join(arguments)} ended with {ran.returncode}: {said}")
    return {"lines": ran.stdout}


def figure(
    paper: str,
    name: str,
    cells: int,
    *,
    full: bool = False,
    command: str | os.PathLike[str] = "tidewire-lab",
    executor: Any = "processes",
    path: str | os.PathLike[str] | None = None,
) -> Sweep:
    """Run all cells of an experiment. Each row of the result has the ``lines`` of one.

    Args:
        paper: a name of ``tidewire-lab papers``.
        name: one of its figures or tables.
        cells: how many cells it has.
        full: simulate more.
        command: the command; the environment of a worker may name another one (``TIDEWIRE_COMMAND``).
        executor: as in :func:`tidewire.sweep`.
        path: as there.

    Raises:
        SweepError: the executor is unknown.
    """
    common = {"paper": paper, "figure": name, "full": full, "command": os.fspath(command)}
    return sweep(run_cell, [{**common, "cell": cell} for cell in range(cells)], executor=executor, path=path)


def main(arguments: list[str] | None = None) -> int:
    """Print the lines of all cells, or what failed, and return the exit code."""
    parser = argparse.ArgumentParser("python -m tidewire.papers", description=__doc__)
    parser.add_argument("paper")
    parser.add_argument("figure")
    parser.add_argument("--cells", type=int, required=True, help="number of its cells")
    parser.add_argument("--executor", default="processes", help="processes, or dask://HOST:PORT")
    parser.add_argument("--command", type=Path, default=Path("tidewire-lab"), help="the command")
    parser.add_argument("--full", action="store_true", help="simulate more")
    options = parser.parse_args(arguments)
    try:
        found = figure(
            options.paper,
            options.figure,
            options.cells,
            full=options.full,
            command=options.command,
            executor=options.executor,
        )
    except (SweepError, OSError) as error:
        print(f"papers: {error}", file=sys.stderr)
        return 1
    for failure in found.failures:
        print(f"papers: cell {failure.cell['cell']}: {failure.error}", file=sys.stderr)
    if found.failures:
        return 1
    sys.stdout.write("".join(row["lines"] for row in found.rows))
    return 0


if __name__ == "__main__":
    # Workers import the experiment by the name of its module, which is not `__main__` there.
    from tidewire.papers import main as main_of_module

    sys.exit(main_of_module())
