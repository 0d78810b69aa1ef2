"""Experiments of papers by executors: the same rows and files, whatever runs their cells."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster

from tidewire import papers

DATA = Path(__file__).parents[3] / "papers"
#: Of these the first cells are simulated with the real protocol: 10 s of transfers at 10 Mbit/s.
PAPER, FIGURE, CELLS = "rcdp", "figure-4", 4


def rows_of(found: Any) -> list[dict[str, Any]]:
    """Return the rows of a sweep as the files of the paper have them."""
    rows = []
    assert found.failures == []
    for line in "".join(row["lines"] for row in found.rows).splitlines():
        event = json.loads(line)
        assert (event.pop("v"), event.pop("event")) == (1, "figure_row")
        assert (event.pop("paper"), event.pop("figure")) == (PAPER, FIGURE)
        rows.append(event)
    return rows


def approximate(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row whose numbers equal others within half a percent."""
    return {
        key: pytest.approx(value, rel=5e-3) if isinstance(value, float) else value
        for key, value in row.items()
    }


def test_simulated_cells_are_the_same_on_processes_and_on_a_cluster(command: str, cluster: Cluster) -> None:
    executors = ["processes", cluster.address]
    ours, theirs = (
        rows_of(papers.figure(PAPER, FIGURE, CELLS, command=command, executor=executor))
        for executor in executors
    )
    assert ours == theirs
    assert {row["how"] for row in ours} == {"code"}
    # They are the first of the committed rows. Those are older than the three bytes of arrival in FEEDBACK,
    # which cost up to 0.1 % of the rate.
    kept = json.loads((DATA / PAPER / "data" / f"{FIGURE}.json").read_text("utf-8"))
    assert ours == [approximate(row) for row in kept[: len(ours)]]


def test_the_command_writes_the_same_files_by_every_executor(
    command: str, cluster: Cluster, tmp_path: Path
) -> None:
    written: list[list[bytes]] = []
    for executor in (None, "processes", cluster.address):
        folder = tmp_path / str(len(written))
        arguments = ["papers", "streaming-code-5g", "--only", "table-1", "--out", str(folder)]
        if executor is not None:
            arguments += ["--executor", executor]
        environment = {**os.environ, "TIDEWIRE_PYTHON": sys.executable}
        subprocess.run([command, *arguments], env=environment, check=True, timeout=120)
        written.append([(folder / f"table-1.{kind}").read_bytes() for kind in ("csv", "json")])
    assert written[0] == written[1] == written[2]


def test_a_failed_cell_fails_the_figure(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert papers.main(["streaming-code-5g", "no-table", "--cells", "1", "--command", command]) == 1
    said = capfd.readouterr()
    assert "cell 0: SweepError" in said.err
    assert "--only names no experiment" in said.err
    assert said.out == ""
    assert papers.main(["sphinx", "figure-7", "--cells", "1", "--executor", "elsewhere"]) == 1
    assert "write processes, dask://host:port" in capfd.readouterr().err
