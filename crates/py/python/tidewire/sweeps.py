"""Experiments over many cells, on this machine's processors or on a Dask cluster.

An experiment is a plain function from a cell to a row, or to several. A cell is a dictionary of what varies,
the seed included::

    def delay(cell):
        link = {"rate": "25mbit", "rtt": "60ms", "loss": cell["loss"]}
        flow = {"from": "near", "bytes": "20MB"}
        return tidewire.simulate({"link": link, "flow": [flow]}, cell["seed"])

    if __name__ == "__main__":
        cells = [{"loss": f"{loss}%", "seed": seed} for loss in range(10) for seed in range(100)]
        found = tidewire.sweep(delay, cells, path="delay.parquet.d")
        print(found.dataframe().groupby("loss").delay_p99_ms.median())

What is finished lies in Parquet parts below ``path``: the same call goes on where it was interrupted. The
rows are the same whatever runs them, in the order of the cells, each once.
"""

from __future__ import annotations

import concurrent.futures
import json
import multiprocessing
import os
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tidewire.errors import SweepError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["Failure", "Progress", "Sweep", "sweep"]

Cell: TypeAlias = Mapping[str, Any]
Row: TypeAlias = Mapping[str, Any]
#: From a cell to its row or rows.
Experiment: TypeAlias = "Callable[[dict[str, Any]], Row | Sequence[Row]]"

#: Cells that may wait at each worker, so that none is idle while the answer of another is handled.
AHEAD = 4
#: A part is written after so many cells or seconds, so a killed sweep loses at most these.
PART_CELLS = 1_000
PART_SECONDS = 10.0
#: Workers that may die in one cell before it counts as failed. Chosen as Dask does (allowed-failures).
DEATHS = 3


@dataclass(frozen=True)
class Failure:
    """A cell whose experiment raised an exception, or killed its workers.

    Attributes:
        cell: the cell, with its seed.
        error: the type and the text of the exception.
        traceback: where it was raised, as text; empty for a killed worker.
    """

    cell: dict[str, Any]
    error: str
    traceback: str


@dataclass(frozen=True)
class Progress:
    """How far a sweep is.

    Attributes:
        done: finished cells, those of earlier runs included.
        failed: cells that failed in this run.
        total: all cells.
        seconds: time since this run began.
    """

    done: int
    failed: int
    total: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.done} of {self.total} cells, {self.failed} failed, {self.seconds:.0f} s"


@dataclass(frozen=True)
class Sweep:
    """The result of a sweep.

    Attributes:
        rows: one dictionary for each row, in the order of the cells: the cell's values, then the row's.
        failures: the cells that failed; running the sweep again tries them again.
    """

    rows: list[dict[str, Any]]
    failures: list[Failure] = field(default_factory=list)

    def table(self) -> pa.Table:
        """Return the rows as a table of pyarrow."""
        from tidewire.simulator import table

        return table(self.rows)

    def dataframe(self) -> pd.DataFrame:
        """Return the rows as a data frame of pandas."""
        from tidewire.simulator import dataframe

        return dataframe(self.rows)


def sweep(
    experiment: Experiment,
    cells: Iterable[Cell],
    *,
    executor: Any = "processes",
    path: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    progress: Callable[[Progress], object] | bool = False,
) -> Sweep:
    """Run an experiment over cells.

    Args:
        experiment: a function that a worker can import: from a cell to its row, or a list of rows. A row is
            a dictionary of numbers, texts, booleans and None.
        cells: dictionaries of the same kinds of values, no two alike.
        executor: ``"processes"`` of this machine, a ``dask.distributed.Client``, or ``"dask://host:port"``,
            the address of a scheduler.
        path: a folder for Parquet parts. Cells whose rows lie there are not run again.
        workers: processes; as many as processors unless given.
        progress: called after every finished cell; True prints a line on stderr.

    Returns:
        Rows and failures. An exception of the experiment is a failure and ends nothing else.

    Raises:
        SweepError: two cells are alike, a value is of another kind, the folder holds another sweep, or the
            executor is unknown.
    """
    todo = _Cells(cells)
    parts = _Parts(Path(path), _name(experiment)) if path is not None else None
    finished: dict[str, list[dict[str, Any]]] = {}
    if parts is not None:
        finished = {key: rows for key, rows in parts.read().items() if key in todo.by_key}
    left = [key for key in todo.by_key if key not in finished]
    failures: dict[str, Failure] = {}
    report = _reporter(progress)
    began = time.monotonic()

    def tell() -> None:
        report(Progress(len(finished), len(failures), len(todo.by_key), time.monotonic() - began))

    tell()
    with _engine(executor, workers) as engine:
        outcomes = engine.run(experiment, [(key, todo.by_key[key]) for key in left])
        try:
            for key, outcome in outcomes:
                if key in finished:
                    continue
                result = outcome if isinstance(outcome, Failure) else _checked(todo.by_key[key], outcome)
                if isinstance(result, Failure):
                    failures[key] = result
                else:
                    finished[key] = result
                    if parts is not None:
                        parts.add(key, result)
                tell()
        finally:
            # Also when it is interrupted.
            outcomes.close()
            if parts is not None:
                parts.flush()
    rows = [row for key in todo.by_key for row in finished.get(key, ())]
    # As a part keeps them: every row has every column.
    names = dict.fromkeys(name for row in rows for name in row)
    rows = [{name: row.get(name) for name in names} for row in rows]
    return Sweep(rows, [failures[key] for key in todo.by_key if key in failures])


def _name(experiment: Experiment) -> str:
    return f"{getattr(experiment, '__module__', '?')}.{getattr(experiment, '__qualname__', repr(experiment))}"


class _Cells:
    """The cells by their key: the canonical JSON, which names a cell in every run."""

    def __init__(self, cells: Iterable[Cell]) -> None:
        self.by_key: dict[str, dict[str, Any]] = {}
        for index, cell in enumerate(cells):
            plain = {str(name): _plain(value, f"cell {index}, {name}") for name, value in cell.items()}
            key = json.dumps(plain, sort_keys=True)
            if key in self.by_key:
                raise SweepError(f"cell {index} is like an earlier one: {key}; give each its own seed")
            self.by_key[key] = plain


def _plain(value: Any, where: str) -> Any:
    """Return a value as Python's own kind. numpy's scalars become such."""
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise SweepError(f"{where} is a {type(value).__name__}: give numbers, texts, booleans or None")


def _checked(cell: dict[str, Any], outcome: Any) -> list[dict[str, Any]] | Failure:
    """Return the rows of a cell, or why they are none."""
    try:
        rows = [outcome] if isinstance(outcome, Mapping) else outcome
        if not isinstance(rows, list | tuple) or not all(isinstance(row, Mapping) for row in rows):
            kind = type(outcome).__name__
            raise SweepError(f"the experiment returned a {kind}: return a dictionary or a list of them")
        return [_joined(cell, row) for row in rows]
    except SweepError as error:
        return Failure(cell, f"SweepError: {error}", "")


def _joined(cell: dict[str, Any], row: Row) -> dict[str, Any]:
    """Return the values of the cell, then those of the row."""
    joined = dict(cell)
    for name, value in row.items():
        plain = _plain(value, f"column {name}")
        if joined.setdefault(str(name), plain) != plain:
            ours = joined[str(name)]
            raise SweepError(
                f"column {name} is {ours!r} in the cell and {plain!r} in its row: rename one of them"
            )
    return joined


def _reporter(progress: Callable[[Progress], object] | bool) -> Callable[[Progress], object]:
    if callable(progress):
        return progress
    if not progress:
        return lambda _: None

    def line(now: Progress) -> None:
        print(f"\r{now}", end="\n" if now.done + now.failed == now.total else "", file=sys.stderr, flush=True)

    return line


class _Parts:
    """The folder of a sweep: finished cells in Parquet files that are only ever added.

    A part has the columns of its rows, the column ``_cell`` with the key of their cell, and in its metadata
    the keys of all its cells, also of those without a row. Invariant: a file appears under its name by one
    rename, so it is whole; a cell is in one file only, because only this process writes.
    """

    def __init__(self, folder: Path, experiment: str) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._pa, self._pq = pa, pq
        self._folder = folder
        self._waiting: list[tuple[str, list[dict[str, Any]]]] = []
        self._written = time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)
        name = folder / "experiment.txt"
        if not name.exists():
            name.write_text(experiment, encoding="utf-8")
        other = name.read_text(encoding="utf-8")
        if other != experiment:
            raise SweepError(f"{folder} holds the sweep of {other}, not of {experiment}: name another folder")

    def read(self) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of every finished cell."""
        found: dict[str, list[dict[str, Any]]] = {}
        for file in sorted(self._folder.glob("part-*.parquet")):
            table = self._pq.read_table(file)
            found.update((key, []) for key in json.loads(table.schema.metadata[b"cells"]))
            for row in table.to_pylist():
                found[row.pop("_cell")].append(row)
        return found

    def add(self, key: str, rows: list[dict[str, Any]]) -> None:
        """Keep the rows of a cell, and write them with others."""
        self._waiting.append((key, rows))
        if len(self._waiting) >= PART_CELLS or time.monotonic() - self._written > PART_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        self._written = time.monotonic()
        if not self._waiting:
            return
        rows = [(key, row) for key, rows in self._waiting for row in rows]
        columns: dict[str, Any] = {"_cell": self._pa.array([key for key, _ in rows], self._pa.string())}
        for name in dict.fromkeys(name for _, row in rows for name in row):
            try:
                columns[name] = self._pa.array([row.get(name) for _, row in rows])
            except (self._pa.ArrowInvalid, self._pa.ArrowTypeError) as error:
                raise SweepError(f"column {name} has values of two kinds: {error}") from error
        keys = json.dumps([key for key, _ in self._waiting])
        table = self._pa.table(columns).replace_schema_metadata({"cells": keys})
        number = 1 + max((int(file.stem[5:]) for file in self._folder.glob("part-*.parquet")), default=-1)
        target = self._folder / f"part-{number:06}.parquet"
        partial = target.with_suffix(f".{os.getpid()}.partial")
        self._pq.write_table(table, partial)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.rename(target)
        self._waiting.clear()


#: A cell with its key.
_Work: TypeAlias = "tuple[str, dict[str, Any]]"


def _attempt(experiment: Experiment, cell: dict[str, Any]) -> Any:
    """Run one cell, in a worker. An exception comes back as a failure: not every one can be pickled."""
    try:
        return experiment(dict(cell))
    except Exception as error:
        return Failure(cell, f"{type(error).__name__}: {error}", traceback.format_exc())


def _died(cell: dict[str, Any]) -> Failure:
    return Failure(cell, f"WorkerDied: {DEATHS} workers died while they ran this cell", "")


class _Processes:
    """Processes of this machine. They are spawned: a forked one could not use the transport."""

    def __init__(self, workers: int | None) -> None:
        self._workers = workers or os.cpu_count() or 1

    def run(self, experiment: Experiment, work: list[_Work]) -> Generator[tuple[str, Any], None, None]:
        """Yield the outcome of each cell once."""
        waiting = deque(work)
        while waiting:
            suspects: list[_Work] = []
            yield from self._together(experiment, waiting, suspects)
            # A pool that broke does not say in which cell: each that ran then runs alone.
            for suspect in suspects:
                yield from self._alone(experiment, suspect)

    def _together(
        self, experiment: Experiment, waiting: deque[_Work], suspects: list[_Work]
    ) -> Generator[tuple[str, Any], None, None]:
        """Run the cells that wait, until all are done or a worker dies. Then `suspects` were running."""
        with _pool(self._workers) as pool:
            running: dict[concurrent.futures.Future[Any], _Work] = {}
            while running or (waiting and not suspects):
                while waiting and not suspects and len(running) < self._workers * AHEAD:
                    item = waiting.popleft()
                    try:
                        running[pool.submit(_attempt, experiment, item[1])] = item
                    except BrokenProcessPool:
                        suspects.append(item)
                ended, _ = concurrent.futures.wait(running, return_when=FIRST_COMPLETED)
                for future in ended:
                    item = running.pop(future)
                    try:
                        outcome = future.result()
                    except BrokenProcessPool:
                        suspects.append(item)
                        continue
                    yield item[0], outcome

    def _alone(self, experiment: Experiment, item: _Work) -> Generator[tuple[str, Any], None, None]:
        """Run one cell by itself, again if its worker dies."""
        for _ in range(DEATHS):
            with _pool(1) as pool:
                try:
                    outcome = pool.submit(_attempt, experiment, item[1]).result()
                except BrokenProcessPool:
                    continue
                yield item[0], outcome
                return
        yield item[0], _died(item[1])


@contextmanager
def _pool(workers: int) -> Iterator[concurrent.futures.ProcessPoolExecutor]:
    context = multiprocessing.get_context("spawn")
    pool = concurrent.futures.ProcessPoolExecutor(workers, mp_context=context)
    try:
        yield pool
    except BaseException:
        # Nobody waits for the cells under way.
        for process in list((getattr(pool, "_processes", None) or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


class _Dask:
    """The workers of a Dask scheduler. It runs the cells of a dead worker again, on another."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def run(self, experiment: Experiment, work: list[_Work]) -> Generator[tuple[str, Any], None, None]:
        """Yield the outcome of each cell once."""
        from distributed import KilledWorker, as_completed

        waiting = iter(work)
        completed: Any = as_completed()  # type: ignore[no-untyped-call]
        running: dict[str, tuple[Any, _Work]] = {}

        def submit() -> None:
            item = next(waiting, None)
            if item is not None:
                # Not pure: the same cell of another experiment is another task.
                future = self._client.submit(_attempt, experiment, item[1], pure=False)
                running[future.key] = future, item
                completed.add(future)

        try:
            for _ in range(AHEAD * max(1, sum(self._client.nthreads().values()))):
                submit()
            for future in completed:
                _, (key, cell) = running.pop(future.key)
                try:
                    outcome = future.result()
                except KilledWorker:
                    outcome = _died(cell)
                except Exception as error:
                    # A worker that cannot import the experiment, or a cell that was cancelled from outside.
                    outcome = Failure(cell, f"{type(error).__name__}: {error}", traceback.format_exc())
                submit()
                yield key, outcome
        finally:
            self._client.cancel([future for future, _ in running.values()])


@contextmanager
def _engine(executor: Any, workers: int | None) -> Iterator[_Processes | _Dask]:
    if executor == "processes":
        yield _Processes(workers)
        return
    if isinstance(executor, str) and executor.startswith("dask://"):
        from distributed import Client

        client: Any = Client(executor.replace("dask://", "tcp://", 1))  # type: ignore[no-untyped-call]
        with client:
            yield _Dask(client)
        return
    if hasattr(executor, "submit") and hasattr(executor, "nthreads"):
        yield _Dask(executor)
        return
    raise SweepError(
        f"executor {executor!r}: write processes, dask://host:port, or give a client of dask.distributed"
    )
