"""The transport under asyncio: bytes arrive, waiting is real, and misuse is an exception."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import os
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

import tidewire
from tidewire.errors import (
    ClosedError,
    ConnectError,
    ConnectionLostError,
    LoopError,
    MessageBlockedError,
    MessageError,
    NoAnswerError,
    SettingError,
    StreamResetError,
    StreamStoppedError,
    TransportError,
)
from tidewire.transport import Connection

#: Longer than any test takes: a hang is a failure, not a wait.
PATIENCE = 60


def on_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test in an event loop of its own."""

    @functools.wraps(test)
    def run(**arguments: Any) -> None:
        asyncio.run(asyncio.wait_for(test(**arguments), PATIENCE))

    return run


@contextlib.asynccontextmanager
async def pair(**settings: Any) -> AsyncIterator[tuple[Connection, Connection]]:
    """Connect two ends over loopback."""
    async with await tidewire.listen("127.0.0.1:0") as listener:
        accepting = asyncio.ensure_future(listener.accept())
        ours = await tidewire.connect(listener.link(), **settings)
        theirs = await accepting
        try:
            yield ours, theirs
        finally:
            await ours.close(linger=0)


@on_loop
async def test_bytes_arrive_and_both_halves_end() -> None:
    sent = os.urandom(3_000_000)
    async with pair(latency="40ms") as (ours, theirs):

        async def serve() -> bytes:
            reader, writer = await theirs.accept()
            received = await reader.read()
            writer.write(b"%d bytes" % len(received))
            writer.write_eof()
            await writer.drain()
            return received

        serving = asyncio.ensure_future(serve())
        reader, writer = await ours.open()
        writer.write(sent)
        await writer.drain()
        writer.write_eof()
        assert await reader.readline() == b"3000000 bytes"
        assert await serving == sent
        assert reader.at_eof()
        stats = ours.stats()
        assert stats["bytes"]["app_sent"] == len(sent)
        assert theirs.stats()["bytes"]["app_received"] == len(sent)
        assert stats["rtt_ms"]["min"] > 0
        assert ours.rtt > 0
        assert ours.peername == writer.get_extra_info("peername")
        assert ours.peer_key is None


@on_loop
async def test_many_streams_at_once() -> None:
    async with pair() as (ours, theirs):

        async def echo() -> None:
            reader, writer = await theirs.accept()
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
            writer.close()

        async def ask(number: int) -> None:
            reader, writer = await ours.open()
            line = b"%d " % number * 1000 + b"\n"
            writer.write(line)
            await writer.drain()
            assert await reader.readexactly(len(line)) == line
            writer.close()
            await writer.wait_closed()

        await asyncio.gather(*(echo() for _ in range(20)), *(ask(number) for number in range(20)))


@on_loop
async def test_a_reader_that_does_not_read_stops_the_writer() -> None:
    async with pair() as (ours, theirs):
        _, writer = await ours.open()
        written = 0

        async def write() -> None:
            nonlocal written
            while True:
                writer.write(bytes(65536))
                written += 65536
                await writer.drain()

        writing = asyncio.ensure_future(write())
        reader, _ = await theirs.accept()
        before = -1
        while before < written:
            before = written
            await asyncio.sleep(1)
        assert 65536 < written < 256 << 20
        # It goes on as soon as something is read.
        read = 0
        while read < written - (1 << 20):
            read += len(await reader.read(1 << 20))
        while written == before:
            await reader.read(1 << 20)
        writing.cancel()


@on_loop
async def test_a_cancelled_wait_loses_nothing() -> None:
    async with pair() as (ours, theirs):
        for _ in range(50):
            waiting = [asyncio.ensure_future(wait()) for wait in (theirs.accept, theirs.receive_message)]
            await asyncio.sleep(0)
            for task in waiting:
                task.cancel()
        reader, writer = await ours.open()
        lane = ours.open_lane(in_order=True)
        expected = 0

        async def feed() -> None:
            for number in range(300):
                writer.write(b"%06d" % number)
                await ours.send_message(lane, b"%d" % number, 60)
                await asyncio.sleep(0)

        feeding = asyncio.ensure_future(feed())
        stream, answers = await theirs.accept()
        messages: list[bytes] = []
        while expected < 300 or len(messages) < 300:
            with contextlib.suppress(asyncio.TimeoutError, asyncio.IncompleteReadError):
                if expected < 300:
                    assert await asyncio.wait_for(stream.readexactly(6), 0.0005) == b"%06d" % expected
                    expected += 1
            with contextlib.suppress(asyncio.TimeoutError):
                if len(messages) < 300:
                    messages.append((await asyncio.wait_for(theirs.receive_message(), 0.0005)).data)
        await feeding
        assert messages == [b"%d" % number for number in range(300)]
        answers.close()
        assert await reader.read() == b""


@on_loop
async def test_messages_arrive_whole_or_are_refused() -> None:
    async with pair() as (ours, theirs):
        lane = ours.open_lane()
        data = os.urandom(200_000)
        await ours.send_message(lane, data, 30.0)
        message = await theirs.receive_message()
        assert (message.lane, message.data) == (lane, data)
        with pytest.raises(MessageError, match="longer than"):
            await ours.send_message(lane, bytes(300_000), 1.0)
        with pytest.raises(MessageError, match="not opened"):
            await ours.send_message(lane + 1, b"x", 1.0)
        with pytest.raises(SettingError, match="-1"):
            await ours.send_message(lane, b"x", -1)
        with pytest.raises(MessageBlockedError, match="no room"):
            while True:
                await ours.send_message(lane, data, 0)
        while True:
            try:
                ours.open_lane()
            except TransportError as refused:
                assert "no lane" in str(refused)
                break


@on_loop
async def test_an_end_is_an_exception_for_those_who_wait() -> None:
    async with pair() as (ours, theirs):
        reader, writer = await ours.open()
        writer.write(b"x")
        theirs_reader, theirs_writer = await theirs.accept()
        await theirs_reader.readexactly(1)
        waiting = [asyncio.ensure_future(one) for one in (ours.accept(), reader.read(), ours.closed())]
        await asyncio.sleep(0)
        theirs.abort("enough")
        accepted, read, reason = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(accepted, ConnectionLostError)
        assert "enough" in str(accepted)
        assert isinstance(read, ConnectionLostError)
        assert "enough" in str(reason)
        with pytest.raises(ConnectionLostError):
            await ours.receive_message()
        with pytest.raises(ClosedError):
            await theirs.open()
        for stream in (writer, theirs_writer):
            stream.write(b"x")
            with pytest.raises(TransportError):
                await stream.drain()


@on_loop
async def test_a_stream_can_be_given_up() -> None:
    async with pair() as (ours, theirs):
        reader, writer = await ours.open()
        writer.write(b"x")
        theirs_reader, theirs_writer = await theirs.accept()
        writer.transport.abort()
        with pytest.raises(StreamResetError, match="gave the stream up") as refused:
            await theirs_reader.read()
        assert refused.value.code == 0
        # Another stream, whose reader stops: the writer learns it.
        _, writer = await ours.open()
        writer.write(b"x")
        _, theirs_writer = await theirs.accept()
        theirs_writer.transport.abort()
        with pytest.raises((StreamStoppedError, StreamResetError)):
            while True:
                writer.write(bytes(1000))
                await writer.drain()
                await asyncio.sleep(0.001)
        del reader, theirs_reader


@on_loop
async def test_wrong_settings_have_the_sentence_of_the_command() -> None:
    for settings, text in [
        ({"latency": "40"}, "latency: "),
        ({"latency": "0ms"}, "latency: less than 1 ms"),
        ({"profile": "steam"}, "profile: "),
        ({"code": "cauchi"}, "did you mean"),
        ({"max_overhead": "300%"}, "max_overhead: "),
        ({"latancy": "40ms"}, 'unknown setting "latancy"; did you mean "latency"'),
    ]:
        with pytest.raises(SettingError, match=text):
            await tidewire.listen("127.0.0.1:0", **settings)
    with pytest.raises(SettingError, match="is not an address with a port"):
        await tidewire.listen("127.0.0.1")
    with pytest.raises(SettingError, match="secret: "):
        await tidewire.listen("127.0.0.1:0", secret="tws1nonsense")
    with pytest.raises(SettingError, match="authorized_keys"):
        await tidewire.listen("127.0.0.1:0", private_key="tw")
    with pytest.raises(SettingError, match="tidewire://"):
        await tidewire.connect("http://127.0.0.1")
    async with await tidewire.listen("127.0.0.1:0") as listener:
        host, port = listener.sockname
        with pytest.raises(TransportError, match="cannot listen"):
            await tidewire.listen(f"{host}:{port}")
        other = await tidewire.listen("127.0.0.1:0")
        wrong = other.link().replace(str(other.sockname[1]), str(port))
        with pytest.raises(NoAnswerError):
            await tidewire.connect(wrong, connect_timeout="300ms")
        with pytest.raises(ConnectError, match="no address of"):
            await tidewire.connect(listener.link("no.such.host.invalid"))
        await other.close()
        with pytest.raises(ClosedError):
            await other.accept()


@on_loop
async def test_closing_waits_until_everything_has_arrived() -> None:
    async with await tidewire.listen("127.0.0.1:0") as listener:
        accepting = asyncio.ensure_future(listener.accept())
        ours = await tidewire.connect(listener.link())
        theirs = await accepting
        _, writer = await ours.open()
        writer.write(bytes(500_000))
        writer.write_eof()
        await ours.close("done")
        await ours.close()
        reader, _ = await theirs.accept()
        # What arrived before the end can still be read.
        received = 0
        with contextlib.suppress(ConnectionLostError):
            while data := await reader.read(65536):
                received += len(data)
        assert received > 0
        assert "done" in await theirs.closed()


def test_another_event_loop_is_refused() -> None:
    kept: list[Any] = []

    async def keep() -> None:
        kept.append(await tidewire.listen("127.0.0.1:0"))

    async def use() -> None:
        with pytest.raises(LoopError, match="listener belongs to another event loop"):
            await kept[0].accept()

    asyncio.run(keep())
    asyncio.run(use())


def test_without_an_event_loop() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        tidewire.listen("127.0.0.1:0").send(None)


#: In an interpreter of its own: the child collects all garbage, and objects of other tests may wait for
#: threads that a child does not have.
FORK = """
import asyncio, gc, os, tidewire
from tidewire.errors import ForkError

async def main():
    async with await tidewire.listen("127.0.0.1:0") as listener:
        accepting = asyncio.ensure_future(listener.accept())
        ours = await tidewire.connect(listener.link())
        theirs = await accepting
        _, writer = await ours.open()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                ours.stats()
            except ForkError:
                code = 0
            # Dropping the parent's connection takes none of its locks.
            del ours, writer
            gc.collect()
            os._exit(code)
        status = await asyncio.get_running_loop().run_in_executor(None, os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(status[1]) == 0
        writer.write(b"the parent goes on")
        await writer.drain()
        await ours.close(linger=0)

asyncio.run(main())
"""


def test_a_fork_is_refused_and_does_not_hang() -> None:
    subprocess.run([sys.executable, "-c", FORK], check=True, timeout=PATIENCE)


@on_loop
async def test_explain_says_what_is_planned_and_ends() -> None:
    async with pair(latency="40ms") as (ours, theirs):
        explained: list[dict[str, Any]] = []

        async def watch() -> None:
            async for plan in ours.explain():
                explained.append(plan)

        watching = asyncio.ensure_future(watch())
        _, writer = await ours.open()
        writer.write(bytes(100_000))
        await writer.drain()
        await asyncio.sleep(0.6)
        theirs.abort()
        await watching
        assert all({"repair", "late", "feasible", "words"} <= plan.keys() for plan in explained)


@on_loop
async def test_statistics_can_be_read_in_other_threads() -> None:
    async with pair() as (ours, _):
        _, writer = await ours.open()
        failures: list[BaseException] = []

        def use() -> None:
            try:
                for _ in range(2000):
                    writer.transport.get_extra_info("connection").stats()
            except BaseException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=use) for _ in range(3)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0)
        assert failures == []


@on_loop
async def test_waiting_leaves_nothing_behind() -> None:
    async with pair() as (ours, theirs):
        reader, writer = await ours.open()
        writer.write(b"x")
        far_reader, far_writer = await theirs.accept()
        await far_reader.readexactly(1)
        lane = ours.open_lane()

        async def round_of_waits() -> None:
            for _ in range(300):
                far_writer.write(b"x")
                await reader.readexactly(1)
                await ours.send_message(lane, b"y", 30)
                await theirs.receive_message()
                waiting = asyncio.ensure_future(ours.accept())
                await asyncio.sleep(0)
                waiting.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await waiting
            gc.collect()

        await round_of_waits()
        tracemalloc.start()
        await round_of_waits()
        before = tracemalloc.get_traced_memory()[0]
        await round_of_waits()
        # One object of 16 bytes in each of the 900 waits would be more.
        assert tracemalloc.get_traced_memory()[0] - before < 8_000
        tracemalloc.stop()


@on_loop
async def test_connections_leave_nothing_behind() -> None:
    async with await tidewire.listen("127.0.0.1:0") as listener:

        async def round_of_connections() -> None:
            for _ in range(100):
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
            await asyncio.sleep(0)
            gc.collect()

        await round_of_connections()
        tracemalloc.start()
        await round_of_connections()
        before = tracemalloc.get_traced_memory()[0]
        await round_of_connections()
        grown = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
    # One object of 80 bytes for each of the 100 connections would be more.
    assert grown < 8_000


def test_a_loop_that_is_over_leaves_no_descriptor() -> None:
    async def once() -> None:
        async with pair() as (ours, _):
            await ours.open()

    asyncio.run(once())
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        asyncio.run(once())
    gc.collect()
    deadline = time.monotonic() + PATIENCE
    # The thread of the transport closes its sockets when it comes to that.
    while len(os.listdir("/proc/self/fd")) > before:
        assert time.monotonic() < deadline
        time.sleep(0.01)
