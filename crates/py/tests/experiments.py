"""Experiments of the sweep's tests. A module of its own, because workers import it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import tidewire


def square(cell: dict[str, Any]) -> dict[str, Any]:
    """Return one row."""
    return {"square": cell["n"] ** 2, "half": cell["n"] / 2}


def rows(cell: dict[str, Any]) -> list[dict[str, Any]]:
    """Return as many rows as the cell says, none too."""
    return [{"row": row} for row in range(cell["n"] % 3)]


def simulated(cell: dict[str, Any]) -> dict[str, Any]:
    """Run the simulator."""
    link = {"rate": "8mbit", "rtt": "40ms", "loss": cell["loss"]}
    return tidewire.simulate({"link": link, "flow": [{"from": "near", "bytes": "50kB"}]}, cell["seed"])


def failing(cell: dict[str, Any]) -> dict[str, Any]:
    """Raise for some cells."""
    if cell["n"] % 4 == 1:
        raise ValueError(f"{cell['n']} is refused")
    return {"ok": True}


def deadly(cell: dict[str, Any]) -> dict[str, Any]:
    """Kill its worker for one cell."""
    if cell["n"] == cell["deadly"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"alive": True}


def slow(cell: dict[str, Any]) -> dict[str, Any]:
    """Take a while, and leave a mark that it began."""
    (Path(cell["marks"]) / f"{cell['n']}-{os.getpid()}").touch()
    time.sleep(0.05)
    return {"square": cell["n"] ** 2}


def odd(cell: dict[str, Any]) -> Any:
    """Return what is no row."""
    return [None, "text", {"column": object()}, 7][cell["n"]]
