"""Compare Python with Rust: the codec over numpy, and one stream over loopback under asyncio.

Install the wheel of the profile ``release`` first, on a quiet machine (docs/python.md)::

    cargo build --release --manifest-path crates/py/Cargo.toml --example rust_side
    python crates/py/benchmarks/compare.py target/release/examples/rust_side

Both sides take turns, and the medians of all turns are compared. ``compare.py awaits`` measures what
rounds of 10,000 awaits leave in memory, ``compare.py connections`` what ten rounds of 1,000 connections
leave, and ``compare.py sweep`` what two workers gain.
"""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import tidewire
from tidewire.codec import Generation

COUNT, LENGTH = 64, 1280
#: As in rust_side.rs.
SPAN = 0.02
WRITE = 1 << 20
MEGABYTES = 512
TURNS = 5


def least(call: Callable[[], object]) -> float:
    """Return the nanoseconds of one call: the least of ten means."""
    means = []
    for _ in range(10):
        start, calls = time.perf_counter(), 0
        while time.perf_counter() - start < SPAN:
            for _ in range(16):
                call()
            calls += 16
        means.append((time.perf_counter() - start) * 1e9 / calls)
    return min(means)


def codec() -> dict[str, float]:
    """Return the nanoseconds of each kind of call."""
    sources = np.random.default_rng(1).integers(0, 256, (COUNT, LENGTH), dtype=np.uint8)
    block, figures = Generation("rlc", COUNT), {}
    for count in (4, 16):
        repairs, decoded = np.empty((count, LENGTH), np.uint8), np.empty((count, LENGTH), np.uint8)
        figures[f"encode {count}"] = least(partial(block.encode, sources, out=repairs))
        plan = block.plan([4 * index for index in range(count)], list(range(count)))
        figures[f"decode {count}"] = least(partial(plan.decode, sources, repairs, out=decoded))
    return figures


async def transport() -> float:
    """Return the megabits per second of one stream, in writes of 1 MiB."""
    async with await tidewire.listen("127.0.0.1:0") as listener:

        async def receive() -> None:
            connection = await listener.accept()
            reader, writer = await connection.accept()
            received = 0
            while data := await reader.read(WRITE):
                received += len(data)
            writer.write(received.to_bytes(8, "big"))
            writer.write_eof()
            await connection.closed()

        receiving = asyncio.ensure_future(receive())
        connection = await tidewire.connect(listener.link())
        reader, writer = await connection.open()
        data, start = bytes(WRITE), time.perf_counter()
        for _ in range(MEGABYTES):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
        assert int.from_bytes(await reader.readexactly(8), "big") == MEGABYTES * WRITE
        seconds = time.perf_counter() - start
        await connection.close()
        await receiving
    return MEGABYTES * WRITE * 8e-6 / seconds


def compare(rust: str) -> None:
    """Print a table of medians and ratios."""

    def of_rust(*arguments: str) -> dict[str, float]:
        output = subprocess.run([rust, *arguments], check=True, capture_output=True).stdout
        figures: dict[str, float] = json.loads(output)
        return figures

    ours: dict[str, list[float]] = {}
    theirs: dict[str, list[float]] = {}
    for _ in range(TURNS):
        for name, value in of_rust("codec").items():
            theirs.setdefault(f"{name}, ns", []).append(value)
        for name, value in codec().items():
            ours.setdefault(f"{name}, ns", []).append(value)
        theirs.setdefault("loopback, Mbit/s", []).append(of_rust("transport", str(MEGABYTES))["megabits"])
        ours.setdefault("loopback, Mbit/s", []).append(asyncio.run(transport()))
    print("| work | Rust | Python | speed of Python over Rust |\n| --- | ---: | ---: | ---: |")
    for name, values in ours.items():
        a, b = statistics.median(theirs[name]), statistics.median(values)
        print(f"| {name} | {a:,.0f} | {b:,.0f} | {a / b if name.endswith('ns') else b / a:.2f} |")


def resident() -> int:
    """Return the bytes that the process has in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def awaits(rounds: int = 10, each: int = 10_000) -> list[tuple[int, int]]:
    """Return the bytes of Python and of the process after each round of waits of every kind."""
    found = []
    async with await tidewire.listen("127.0.0.1:0") as listener:
        accepting = asyncio.ensure_future(listener.accept())
        ours = await tidewire.connect(listener.link())
        theirs = await accepting
        reader, writer = await ours.open()
        writer.write(b"x")
        far_reader, far_writer = await theirs.accept()
        await far_reader.readexactly(1)
        lane = ours.open_lane()
        for _ in range(rounds):
            for number in range(each):
                writer.write(b"x")
                far_writer.write(await far_reader.readexactly(1))
                await reader.readexactly(1)
                if number % 10 == 0:
                    await ours.send_message(lane, b"y", 10)
                    await theirs.receive_message()
                    # A cancelled one leaves nothing behind.
                    waiting = asyncio.ensure_future(ours.accept())
                    await asyncio.sleep(0)
                    waiting.cancel()
                    del waiting
            gc.collect()
            found.append((tracemalloc.get_traced_memory()[0], resident()))
        await ours.close()
    return found


def descriptors() -> int:
    """Return how many descriptors this process has."""
    return len(list(Path("/proc/self/fd").iterdir()))


async def one_connection(listener: tidewire.Listener) -> None:
    """Connect, send a byte each way, and close both ends."""
    accepting = asyncio.ensure_future(listener.accept())
    ours = await tidewire.connect(listener.link())
    theirs = await accepting
    reader, writer = await ours.open()
    writer.write(b"x")
    far_reader, far_writer = await theirs.accept()
    far_writer.write(await far_reader.readexactly(1))
    await reader.readexactly(1)
    await ours.close(linger=0)
    await theirs.close(linger=0)


async def connections(rounds: int = 10, each: int = 1_000) -> None:
    """Print the bytes of Python and of the process, and its descriptors, after each round."""
    async with await tidewire.listen("127.0.0.1:0") as listener:
        for number in range(1, rounds + 1):
            began = time.monotonic()
            for _ in range(each):
                await one_connection(listener)
            # The thread of the transport closes its sockets when it comes to that.
            await asyncio.sleep(1)
            gc.collect()
            traced, files = tracemalloc.get_traced_memory()[0], descriptors()
            seconds = time.monotonic() - began
            print(
                f"round {number}: Python {traced:,} bytes, process {resident():,} bytes, "
                f"{files} descriptors, {seconds:.1f} s",
                flush=True,
            )


def nap(cell: dict[str, Any]) -> dict[str, Any]:
    """Take 0.1 s, as an experiment that waits for nothing else."""
    time.sleep(0.1)
    return {"slept": True}


def sweeps(count: int = 1000) -> None:
    """Print the times of a sweep with one process, with two, and with two workers of Dask."""
    from distributed import Client, LocalCluster

    cells = [{"seed": seed} for seed in range(count)]

    def timed(**options: Any) -> float:
        start = time.perf_counter()
        found = tidewire.sweep(nap, cells, **options)
        assert len(found.rows) == count
        return time.perf_counter() - start

    one, two = timed(workers=1), timed(workers=2)
    cluster: Any = LocalCluster(  # type: ignore[no-untyped-call]
        n_workers=2, threads_per_worker=1, host="tcp://127.0.0.1", dashboard_address=None
    )
    with cluster, Client(cluster) as client:  # type: ignore[no-untyped-call]
        dask = timed(executor=client)
    print(f"one process {one:.1f} s, two {two:.1f} s: {one / two:.2f} times")
    print(f"Dask with two workers {dask:.1f} s: {dask / two - 1:+.1%}")


def main(arguments: list[str]) -> None:
    """Run what the command line names."""
    match arguments:
        case ["connections"]:
            tracemalloc.start()
            asyncio.run(connections())
        case ["awaits"]:
            tracemalloc.start()
            for number, (traced, memory) in enumerate(asyncio.run(awaits()), 1):
                print(f"round {number}: {traced:,} bytes of Python, {memory:,} bytes resident")
        case ["sweep"]:
            sweeps()
        case [rust]:
            compare(rust)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
