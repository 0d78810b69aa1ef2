"""The simulator: the real protocol over links in virtual time, with one seed for all randomness.

A scenario is a file (docs/lab.md), its text, or a dictionary with the same keys::

    row = tidewire.simulate(
        {
            "link": {"rate": "25mbit", "rtt": "60ms", "loss": "gilbert:10%,4"},
            "flow": [{"from": "near", "bytes": "20MB"}],
        },
        seed=7,
    )

The row depends only on scenario, seed and limit, on every machine. The GIL is released, and Ctrl-C ends a run
within half a second. :func:`tidewire.sweep` runs many.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tidewire import _native
from tidewire.errors import ScenarioError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = [
    "Scenario",
    "dataframe",
    "grid_cells",
    "grid_scenario",
    "scenario_text",
    "simulate",
    "simulate_network",
    "table",
]

#: A file, the text of one, or its sections by name. Values are texts with a unit, as in the file.
Scenario: TypeAlias = "os.PathLike[str] | str | Mapping[str, Any]"


def simulate(scenario: Scenario, seed: int | None = None, *, limit: float = 600.0) -> dict[str, Any]:
    """Run a scenario of two ends.

    Args:
        scenario: a path, the text of a scenario file, or a dictionary of its sections.
        seed: the source of all randomness, at least 0; the scenario's own, or 1, unless given.
        limit: virtual seconds after which the run ends, whatever is left.

    Returns:
        One flat row, of the end that sends more: ``done``, ``seconds``, ``bytes``, ``goodput_bps``,
        ``steady_goodput_bps`` (from the third second on; None in shorter runs), ``sent_per_byte`` (IP
        bytes sent for each byte delivered), ``loss_rate`` (as measured), ``rtt_*_ms``, ``delay_*_ms``
        (in-order delay of source symbols; None if nothing arrived), ``packets_*``, ``symbols_*``,
        ``link_*`` and ``seed``.
        ``errors`` is empty unless the simulator's oracle found wrong bytes.

    Raises:
        ScenarioError: the scenario is wrong; the text names file, line and key.
    """
    return _native.simulate(*_text_and_file(scenario), seed, limit)


def simulate_network(
    scenario: Scenario, seed: int | None = None, *, limit: float = 600.0
) -> list[dict[str, Any]]:
    """Run a network with all of its flows at once (docs/networks.md): TCP, tunnels, and connections of ours.

    Args:
        scenario: as for :func:`simulate`. In a dictionary, nodes, links, tunnels and flows are lists.
        seed: the source of all randomness, at least 0; the scenario's own, or 1, unless given.
        limit: virtual seconds after which the run ends, if the scenario has no ``time``.

    Returns:
        A row for each flow, in the scenario's order: ``name``, ``kind``, ``from``, ``to``, ``bytes``,
        ``whole`` (None without an end), ``seconds``, ``goodput_bps``, ``latency_*_ms`` (from application to
        application; None for a flow of TCP without records), ``packets``, ``repeated`` and ``seed``.
        ``errors`` is empty unless wrong bytes arrived.

    Raises:
        ScenarioError: the scenario is wrong; the text names file, line and key.
    """
    return _native.simulate_network(*_text_and_file(scenario), seed, limit)


def _text_and_file(scenario: Scenario) -> tuple[str, str]:
    """Return the text of a scenario, and how an error calls it."""
    if isinstance(scenario, Mapping):
        return scenario_text(scenario), "scenario"
    if isinstance(scenario, os.PathLike):
        path = Path(scenario)
        try:
            return path.read_text(encoding="utf-8"), str(path)
        except (OSError, UnicodeDecodeError) as error:
            raise ScenarioError(f"{path}: {error}") from error
    return scenario, "scenario"


def scenario_text(sections: Mapping[str, Any]) -> str:
    """Return the text of a scenario file with these sections. Whole numbers stay numbers."""
    tops, tables = [], []
    for name, value in sections.items():
        if isinstance(value, Mapping):
            tables.append(f"[{_key(name)}]\n{_pairs(value)}")
        elif isinstance(value, Sequence) and not isinstance(value, str):
            tables.extend(f"[[{_key(name)}]]\n{_pairs(each)}" for each in value)
        else:
            tops.append(f"{_key(name)} = {_value(value)}\n")
    return "".join(tops + tables)


def _pairs(table: Mapping[str, Any]) -> str:
    return "".join(f"{_key(name)} = {_value(value)}\n" for name, value in table.items())


def _key(name: str) -> str:
    # A quoted key may have any characters; the scenario's reader then names the unknown one.
    return name if name.isidentifier() else _value(str(name))


def _value(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text) + '"'


def grid_cells(part: str = "core") -> list[dict[str, Any]]:
    """Return the links and loads of the grid (docs/envelope.md): its ``core``, or one axis ``around`` it.

    Each is a dictionary: ``cell`` (its name), ``loss``, ``burst`` in packets, ``rtt_ms``, ``load`` (fraction
    of the link's 25 Mbit/s that the application writes, None for as fast as possible), ``back_loss``,
    ``max_span`` in symbols and ``misjudged``.

    Raises:
        ScenarioError: there is no such part.
    """
    return _native.grid_cells(part)


def grid_scenario(cell: Mapping[str, Any], **end: str) -> dict[str, Any]:
    """Return the scenario of a cell of the grid, for :func:`simulate` with a limit.

    Args:
        cell: one of :func:`grid_cells` with the default span and estimate.
        end: settings of both ends, like ``redundancy="every:5"``.

    Raises:
        ScenarioError: the cell has another span or estimate, which a scenario cannot say.
    """
    if cell["max_span"] != 256 or cell["misjudged"] != 1.0:
        raise ScenarioError(
            f"{cell['cell']}: a scenario has no span and no wrong estimate: leave the cell out"
        )
    loss = f"{cell['loss'] * 100}%"
    link = {"rate": "25mbit", "rtt": f"{cell['rtt_ms']}ms", "queue": f"{cell['rtt_ms']}ms"}
    flow = {"from": "near", "bytes": "1000GB"}
    if cell["load"] is not None:
        flow["rate"] = f"{cell['load'] * 25}mbit"
    return {
        "link": link,
        "forward": {"loss": f"gilbert:{loss},{cell['burst']}" if cell["burst"] > 1 else loss},
        "back": {"loss": f"{cell['back_loss'] * 100}%"},
        "near": dict(end),
        "far": dict(end),
        "flow": [flow],
    }


def table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows as a table of pyarrow: a column for every name that a row has, null where it is missing."""
    import pyarrow as pa

    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: [row.get(name) for row in rows] for name in names})


def dataframe(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return rows as a data frame of pandas."""
    import pandas as pd

    return pd.DataFrame.from_records([dict(row) for row in rows])
