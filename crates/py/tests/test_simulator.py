"""The simulator: rows that depend on the seed only, scenarios in three forms, and Ctrl-C."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tidewire import simulator
from tidewire.errors import ScenarioError
from tidewire.simulator import simulate, simulate_network

SECTIONS: dict[str, Any] = {
    "seed": 3,
    "link": {"rate": "8mbit", "rtt": "40ms", "loss": "5%"},
    "flow": [{"from": "near", "bytes": "400kB"}],
}
TEXT = """seed = 3
[link]
rate = "8mbit"
rtt = "40ms"
loss = "5%"
[[flow]]
from = "near"
bytes = "400kB"
"""


def test_a_row_depends_on_scenario_and_seed(tmp_path: Path) -> None:
    file = tmp_path / "scenario.toml"
    file.write_text(TEXT)
    row = simulate(SECTIONS)
    assert row == simulate(TEXT) == simulate(file) == simulate(SECTIONS, 3)
    assert row != simulate(SECTIONS, 4)
    assert row["done"] is True
    assert row["errors"] == ""
    assert (row["seed"], row["bytes"]) == (3, 400_000)
    assert row["rtt_min_ms"] >= 40
    assert row["delay_p50_ms"] <= row["delay_p99_ms"] <= row["delay_max_ms"]
    assert row["symbols_delivered"] == (
        row["symbols_direct"] + row["symbols_repaired"] + row["symbols_resent"]
    )
    assert row["steady_goodput_bps"] is None


def test_rows_become_tables() -> None:
    rows = [simulate(SECTIONS, seed) for seed in (1, 2)]
    assert simulator.table(rows)["seed"].to_pylist() == [1, 2]
    assert list(simulator.dataframe(rows)["bytes"]) == [400_000, 400_000]
    assert simulator.table([]).num_rows == 0


@pytest.mark.parametrize(
    ("scenario", "text"),
    [
        ({}, "no flow"),
        ({"link": {"rate": "8mbit"}}, "no flow"),
        ({**SECTIONS, "link": {"rate": "8 apples"}}, "scenario:3: link.rate"),
        ({**SECTIONS, "lnk": {}}, "lnk"),
        ({**SECTIONS, "near": {"code": "cauchi"}}, "did you mean"),
        ({**SECTIONS, 'a"\n': 1}, "scenario:2"),
        ("not toml", "scenario:1"),
        (Path("/nowhere/at/all"), "/nowhere/at/all"),
    ],
)
def test_a_wrong_scenario_is_named(scenario: Any, text: str) -> None:
    with pytest.raises(ScenarioError, match=text):
        simulate(scenario)


def test_wrong_limits_and_seeds() -> None:
    with pytest.raises(ScenarioError, match="limit"):
        simulate(SECTIONS, limit=-1)
    with pytest.raises(OverflowError):
        simulate(SECTIONS, -1)
    assert simulate(SECTIONS, limit=0.1)["done"] is False


def test_the_grid() -> None:
    cells = simulator.grid_cells()
    assert len(cells) == 16
    row = simulate(simulator.grid_scenario(cells[0], redundancy="every:5"), 1, limit=4)
    assert row["goodput_bps"] > 1e6
    assert row["packets_repair"] > 0
    other = next(cell for cell in simulator.grid_cells("around") if cell["max_span"] != 256)
    with pytest.raises(ScenarioError, match="leave the cell out"):
        simulator.grid_scenario(other)
    with pytest.raises(ScenarioError, match="core or around"):
        simulator.grid_cells("middle")


def test_ctrl_c_ends_a_run() -> None:
    pressed = [0.0]

    def press() -> None:
        time.sleep(0.3)
        pressed[0] = time.monotonic()
        signal.raise_signal(signal.SIGINT)

    threading.Thread(target=press).start()
    endless = {
        **SECTIONS,
        "link": {"rate": "200mbit", "rtt": "40ms"},
        "flow": [{"from": "near", "bytes": "1000GB"}],
    }
    with pytest.raises(KeyboardInterrupt):
        simulate(endless)
    assert time.monotonic() - pressed[0] < 0.5


def network(kind: str = "newreno") -> dict[str, Any]:
    """Return two flows that share a link, one of them in a tunnel."""
    names: list[dict[str, Any]] = [{"name": name} for name in ("a", "b")]
    link = {"from": "a", "to": "b", "rate": "10mbit", "delay": "5ms", "loss": "1%"}
    flows = [
        {"kind": kind, "from": "a", "to": "b", "through": "t"},
        {"from": "a", "to": "b", "rate": "1mbit"},
    ]
    tunnel = [{"name": "t", "from": "a", "to": "b"}]
    return {"time": "4s", "node": names, "link": [link], "tunnel": tunnel, "flow": flows}


def test_a_network_has_a_row_for_each_flow() -> None:
    tcp, ours = rows = simulate_network(network(), 3)
    assert [(row["name"], row["kind"], row["from"], row["to"]) for row in rows] == [
        ("1", "newreno", "a", "b"),
        ("2", "tidewire", "a", "b"),
    ]
    assert ours["goodput_bps"] == pytest.approx(1e6, rel=0.1)
    assert ours["latency_p50_ms"] > 5
    assert tcp["goodput_bps"] > 2e6
    assert all(row["errors"] == "" and row["seed"] == 3 for row in rows)
    assert simulate_network(network(), 3) == rows
    assert simulate_network(network(), 4) != rows


def test_a_wrong_network_is_refused() -> None:
    with pytest.raises(ScenarioError, match="neither BBR nor peers"):
        simulate_network(network("bbr"))
    with pytest.raises(ScenarioError, match="a limit of -1"):
        simulate_network(network(), limit=-1)
    with pytest.raises(ScenarioError, match="scenario"):
        simulate_network("[[node]]\nname = 7\n")
