"""Sweeps: every cell once, in order, on processes and on a real Dask scheduler, whatever dies."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import experiments
import numpy as np
import pytest
from cluster import Cluster

from tidewire.errors import SweepError
from tidewire.sweeps import Progress, sweep


def cells(count: int, **also: Any) -> list[dict[str, Any]]:
    return [{"n": n, **also} for n in range(count)]


def test_rows_have_the_order_of_the_cells() -> None:
    seen: list[Progress] = []
    found = sweep(experiments.square, cells(30), workers=2, progress=seen.append)
    assert found.rows == [{"n": n, "square": n * n, "half": n / 2} for n in range(30)]
    assert found.failures == []
    assert (seen[0].done, seen[-1].done, seen[-1].total) == (0, 30, 30)
    assert found.table()["square"].to_pylist()[-1] == 841
    assert len(found.dataframe()) == 30


def test_a_cell_may_have_several_rows_or_none(tmp_path: Path) -> None:
    for _ in range(2):
        found = sweep(experiments.rows, cells(6), workers=1, path=tmp_path)
        assert [(row["n"], row["row"]) for row in found.rows] == [
            (1, 0),
            (2, 0),
            (2, 1),
            (4, 0),
            (5, 0),
            (5, 1),
        ]


def test_failures_are_kept_with_their_cell_and_tried_again(tmp_path: Path) -> None:
    for _ in range(2):
        found = sweep(experiments.failing, cells(6), workers=1, path=tmp_path)
        assert [row["n"] for row in found.rows] == [0, 2, 3, 4]
        assert [failure.cell for failure in found.failures] == [{"n": 1}, {"n": 5}]
        assert found.failures[0].error == "ValueError: 1 is refused"
        assert "in failing" in found.failures[0].traceback


def test_a_sweep_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    marks, parts = tmp_path / "marks", tmp_path / "parts"
    marks.mkdir()

    class Enough(Exception):
        pass

    def stop(now: Progress) -> None:
        if now.done == 10:
            raise Enough

    work = cells(25, marks=str(marks))
    with pytest.raises(Enough):
        sweep(experiments.slow, work, workers=2, path=parts, progress=stop)
    began = len(list(marks.iterdir()))
    assert began < 25
    first: list[int] = []
    found = sweep(experiments.slow, work, workers=2, path=parts, progress=lambda now: first.append(now.done))
    assert first[0] == 10
    assert [row["square"] for row in found.rows] == [n * n for n in range(25)]
    assert len(list(marks.iterdir())) >= 25
    # All of it is there: nothing runs.
    before = sorted(marks.iterdir())
    assert sweep(experiments.slow, work, path=parts).rows == found.rows
    assert sorted(marks.iterdir()) == before
    with pytest.raises(SweepError, match=r"holds the sweep of experiments\.slow"):
        sweep(experiments.square, work, path=parts)


def test_a_dead_worker_fails_its_cell_only() -> None:
    found = sweep(experiments.deadly, cells(12, deadly=5), workers=2)
    assert [row["n"] for row in found.rows] == [n for n in range(12) if n != 5]
    assert [(failure.cell["n"], failure.error[:10]) for failure in found.failures] == [(5, "WorkerDied")]


def test_what_is_no_row_is_a_failure() -> None:
    found = sweep(experiments.odd, cells(4), workers=1)
    assert found.rows == []
    assert [failure.error.split(":")[0] for failure in found.failures] == ["SweepError"] * 4
    found = sweep(experiments.square, [{"n": 2, "half": 1.0}, {"n": 2, "half": 5}], workers=1)
    assert found.rows == [{"n": 2, "half": 1.0, "square": 4}]
    assert "column half is 5 in the cell and 1.0 in its row" in found.failures[0].error


@pytest.mark.parametrize(
    ("work", "executor", "text"),
    [
        ([{"n": 1}, {"n": 1}], "processes", "cell 1 is like an earlier one"),
        ([{"n": object()}], "processes", "cell 0, n is a object"),
        ([{"n": 1}], "threads", "executor 'threads': write processes"),
    ],
)
def test_wrong_sweeps_are_refused(work: Any, executor: Any, text: str) -> None:
    with pytest.raises(SweepError, match=text):
        sweep(experiments.square, work, executor=executor)


def test_numpy_scalars_are_numbers() -> None:
    found = sweep(experiments.square, [{"n": np.int64(3)}, {"n": np.float32(0.5)}], workers=1)
    assert [row["square"] for row in found.rows] == [9, 0.25]


def test_dask_gives_the_same_rows(cluster: Cluster, tmp_path: Path) -> None:
    work = [{"loss": f"{loss}%", "seed": seed} for loss in (0, 5) for seed in range(4)]
    local = sweep(experiments.simulated, work, workers=2)
    assert len(local.rows) == 8
    remote = sweep(experiments.simulated, work, executor=cluster.client, path=tmp_path / "parts")
    assert remote == local
    address = cluster.address
    assert sweep(experiments.simulated, work, executor=address) == local
    # What Dask wrote, processes read.
    assert sweep(experiments.simulated, work, path=tmp_path / "parts") == local
    failed = sweep(experiments.failing, cells(3), executor=cluster.client)
    assert [failure.error for failure in failed.failures] == ["ValueError: 1 is refused"]


def test_a_killed_dask_worker_loses_no_row_and_doubles_none(cluster: Cluster, tmp_path: Path) -> None:
    marks, parts = tmp_path / "marks", tmp_path / "parts"
    marks.mkdir()
    killed: list[int] = []

    def kill(now: Progress) -> None:
        if now.done >= 20 and not killed:
            killed.append(now.done)
            os.kill(cluster.workers[0].pid, signal.SIGKILL)

    found = sweep(
        experiments.slow, cells(100, marks=str(marks)), executor=cluster.client, path=parts, progress=kill
    )
    assert killed
    assert [row["n"] for row in found.rows] == list(range(100))
    assert [row["square"] for row in found.rows] == [n * n for n in range(100)]
    assert found.failures == []
    import pyarrow.parquet as pq

    kept = [n for file in sorted(parts.glob("*.parquet")) for n in pq.read_table(file)["n"].to_pylist()]
    assert sorted(kept) == list(range(100))
    # Both workers took part, and cells of the dead one ran again.
    assert len({mark.name.split("-")[1] for mark in marks.iterdir()}) == 2


def test_ctrl_c_ends_a_sweep_and_keeps_what_is_done(tmp_path: Path) -> None:
    marks, parts = tmp_path / "marks", tmp_path / "parts"
    marks.mkdir()

    def press() -> None:
        while len(list(marks.iterdir())) < 5:
            time.sleep(0.01)
        signal.raise_signal(signal.SIGINT)

    threading.Thread(target=press).start()
    with pytest.raises(KeyboardInterrupt):
        sweep(experiments.slow, cells(2000, marks=str(marks)), workers=2, path=parts)
    with contextlib.suppress(KeyboardInterrupt):
        done: list[int] = []

        def stop(now: Progress) -> None:
            done.append(now.done)
            raise KeyboardInterrupt

        sweep(experiments.slow, cells(2000, marks=str(marks)), path=parts, progress=stop)
    assert done[0] >= 1
