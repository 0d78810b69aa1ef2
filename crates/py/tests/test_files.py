"""Files over a connection: trees arrive, what was cut off is resumed, and what did not arrive is named."""

from __future__ import annotations

import asyncio
import functools
import itertools
import os
import pickle
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import tidewire
from tidewire import Connection, Destination, Listener, receive_files, send_files
from tidewire.errors import (
    ClosedError,
    DestinationError,
    FilesError,
    PathsError,
    TransferCutOffError,
    TransferError,
)
from tidewire.files import FileProgress, Outcome

#: Longer than any test takes: a hang is a failure, not a wait.
PATIENCE = 60
#: A file, and a rate at which it takes 1.3 s, so that a transfer is met in its middle on every machine.
LARGE, RATE = 16 << 20, "100mbit"


def on_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test in an event loop of its own."""

    @functools.wraps(test)
    def run(**arguments: Any) -> None:
        asyncio.run(asyncio.wait_for(test(**arguments), PATIENCE))

    return run


async def ends(listener: Listener) -> tuple[Connection, Connection]:
    """Connect two ends."""
    accepting = asyncio.ensure_future(listener.accept())
    return await tidewire.connect(listener.link(), max_rate=RATE), await accepting


def plant(folder: Path) -> Path:
    """Make a tree of files."""
    root = folder / "tree"
    for name, size in (("a", 0), ("deep/er/b ü", 70_000), ("deep/c", 300_001)):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(os.urandom(size))
    (root / "empty").mkdir()
    return root


def contents(root: Path) -> dict[str, bytes | None]:
    """Return every file and folder below a root, without the folder of parts."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in root.rglob("*")
        if ".tidewire-parts" not in path.parts
    }


async def transfer(
    paths: list[Path], destination: Destination | Path, **watch: Any
) -> tuple[Outcome | BaseException, Outcome | BaseException]:
    """Send paths over a connection of its own, and return how both ends ended."""
    async with await tidewire.listen("127.0.0.1:0") as listener:
        ours, theirs = await ends(listener)
        both = await asyncio.gather(
            send_files(ours, paths, **watch), receive_files(theirs, destination), return_exceptions=True
        )
        await ours.close()
        return both[0], both[1]


@on_loop
async def test_a_tree_arrives(tmp_path: Path) -> None:
    root, told = plant(tmp_path), list[FileProgress]()
    sent, received = await transfer([root], tmp_path / "there", progress=told.append)
    assert contents(tmp_path / "there" / "tree") == contents(root)
    expected = Outcome(7, 370_001, 0, 0, (), False)
    assert (sent, received) == (expected, expected)
    # Told at least at the end, and never backwards.
    assert told[-1] == FileProgress(3, 370_001, 370_001, 0, 7)
    assert all(a.moved_bytes <= b.moved_bytes for a, b in itertools.pairwise(told))


@on_loop
async def test_a_cancelled_transfer_is_resumed(tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(os.urandom(LARGE))
    destination = Destination(tmp_path / "there")
    async with await tidewire.listen("127.0.0.1:0") as listener:
        ours, theirs = await ends(listener)
        moved = asyncio.Event()

        def watch(now: FileProgress) -> None:
            if now.moved_bytes > LARGE // 4:
                moved.set()

        receiving = asyncio.ensure_future(receive_files(theirs, destination))
        sending = asyncio.ensure_future(send_files(ours, [large], progress=watch))
        await moved.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        with pytest.raises(TransferCutOffError, match="transfer the same paths again to resume it"):
            await receiving
        assert contents(tmp_path / "there") == {}
        await ours.close()
    sent, received = await transfer([large], destination)
    assert isinstance(sent, Outcome)
    assert isinstance(received, Outcome)
    assert sent.resumed_bytes == received.resumed_bytes > 0
    assert (tmp_path / "there/large").read_bytes() == large.read_bytes()


@on_loop
async def test_a_cancelled_receiver_stops_the_sender_and_keeps_its_part(tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(os.urandom(LARGE))
    destination = Destination(tmp_path / "there")
    async with await tidewire.listen("127.0.0.1:0") as listener:
        ours, theirs = await ends(listener)
        moved = asyncio.Event()

        def watch(now: FileProgress) -> None:
            if now.moved_bytes > LARGE // 4:
                moved.set()

        receiving = asyncio.ensure_future(receive_files(theirs, destination, progress=watch))
        sending = asyncio.ensure_future(send_files(ours, [large]))
        await moved.wait()
        receiving.cancel()
        with pytest.raises(TransferCutOffError, match="the transfer was cut off"):
            await sending
        # The connection carries the next transfer.
        again = await asyncio.gather(send_files(ours, [large]), receive_files(theirs, destination))
        assert again[0].resumed_bytes > 0
        await ours.close()
    assert (tmp_path / "there/large").read_bytes() == large.read_bytes()


@on_loop
async def test_what_becomes_of_a_file_that_exists(tmp_path: Path) -> None:
    root, old = plant(tmp_path), b"old"
    arriving = contents(root)
    for existing, there in (
        ("update", {**arriving, "a": old}),
        ("keep", {**arriving, "a": old}),
        ("replace", arriving),
        ("rename", {**arriving, "a": old, "a (2)": arriving["a"]}),
    ):
        inbox = tmp_path / existing
        (inbox / "tree").mkdir(parents=True)
        (inbox / "tree/a").write_bytes(old)
        (inbox / "tree/other").write_bytes(b"stays")
        both = await transfer([root], Destination(inbox, existing=existing))  # type: ignore[arg-type]
        assert contents(inbox / "tree") == {**there, "other": b"stays"}
        for end in both:
            if existing in {"update", "keep"}:
                assert isinstance(end, FilesError)
                (failure,) = end.outcome.failures
                assert (failure.path, failure.reason) == ("tree/a", "exists")
            else:
                assert isinstance(end, Outcome)


@on_loop
async def test_symbolic_links_are_skipped_kept_or_followed(tmp_path: Path) -> None:
    root = plant(tmp_path)
    (root / "link").symlink_to("deep/c")
    for links, makes in (("skip", True), ("keep", True), ("keep", False), ("follow", False)):
        inbox = tmp_path / f"{links} {makes}"
        async with await tidewire.listen("127.0.0.1:0") as listener:
            ours, theirs = await ends(listener)
            sent, _ = await asyncio.gather(
                send_files(ours, [root], links=links),  # type: ignore[arg-type]
                receive_files(theirs, Destination(inbox, links=makes)),
                return_exceptions=True,
            )
            await ours.close()
        link = inbox / "tree/link"
        assert link.is_symlink() == (links == "keep" and makes)
        if links == "skip" or (links == "keep" and not makes):
            assert isinstance(sent, FilesError)
            assert [failure.path.endswith("tree/link") for failure in sent.outcome.failures] == [True]
        else:
            assert isinstance(sent, Outcome)
            assert link.read_bytes() == (root / "deep/c").read_bytes()


@on_loop
async def test_a_file_may_grow(tmp_path: Path) -> None:
    log, stop = tmp_path / "log", threading.Event()
    log.write_bytes(os.urandom(LARGE // 4))

    def append() -> None:
        with log.open("ab", buffering=0) as file:
            while not stop.wait(0.005):
                file.write(b"another line\n")

    writer = threading.Thread(target=append)
    writer.start()
    try:
        async with await tidewire.listen("127.0.0.1:0") as listener:
            ours, theirs = await ends(listener)
            both = await asyncio.gather(
                send_files(ours, [log], growing=True), receive_files(theirs, tmp_path / "there")
            )
            await ours.close()
    finally:
        stop.set()
        writer.join()
    arrived = (tmp_path / "there/log").read_bytes()
    assert both[0].failed == both[1].failed == 0
    assert LARGE // 4 <= len(arrived) < log.stat().st_size
    assert log.read_bytes().startswith(arrived)


@pytest.mark.skipif(sys.platform != "linux", reason="names are bytes on Linux")
@on_loop
async def test_names_that_are_no_text_arrive_and_are_named_by_bytes(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    name = os.fsdecode(b"a\xff")
    (root / name).write_bytes(b"x")
    inbox = tmp_path / "there"
    sent, _ = await transfer([root], inbox)
    assert isinstance(sent, Outcome)
    assert (inbox / "tree" / name).read_bytes() == b"x"
    (root / name).write_bytes(b"longer")
    both = await transfer([root], Destination(inbox, existing="keep"))
    for end in both:
        assert isinstance(end, FilesError)
        (failure,) = end.outcome.failures
        assert (failure.path, failure.path_bytes) == ("tree/a\\xff", b"tree/a\xff")


@on_loop
async def test_what_does_not_arrive_is_named(tmp_path: Path) -> None:
    root = plant(tmp_path)
    # A folder is in the way of a file, and a limit of another.
    (tmp_path / "there/tree/a").mkdir(parents=True)
    (tmp_path / "there/tree/a/x").touch()
    both = await transfer([root], Destination(tmp_path / "there", max_bytes=100_000))
    for end in both:
        assert isinstance(end, FilesError)
        assert {failure.path: failure.reason for failure in end.outcome.failures} == {
            "tree/a": "unwritable",
            "tree/deep/c": "over quota",
        }
        assert end.outcome.failed == 2
        assert str(end).startswith(f"2 of {2 + end.outcome.kept} entries did not arrive: tree/a")
        assert pickle.loads(pickle.dumps(end)).outcome == end.outcome
    assert (tmp_path / "there/tree/deep/er/b ü").exists()


@on_loop
async def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    root = plant(tmp_path)
    (tmp_path / "second/tree").mkdir(parents=True)
    with pytest.raises(DestinationError, match="create its parent folder first"):
        Destination(tmp_path / "no/such")
    with pytest.raises(DestinationError, match="name another folder"):
        Destination(root / "a")
    async with await tidewire.listen("127.0.0.1:0") as listener:
        ours, theirs = await ends(listener)
        with pytest.raises(PathsError):
            await send_files(ours, [root, tmp_path / "second/tree"])
        with pytest.raises(FilesError, match=r"1 of 1 entries did not arrive: .*absent"):
            await send_files(ours, [tmp_path / "absent"])
        with pytest.raises(TypeError):
            await send_files(ours, [7])  # type: ignore[list-item]
        with pytest.raises(ValueError, match='links is "both"; use skip, keep or follow'):
            await send_files(ours, [root], links="both")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match='existing is "ask"; use update, replace, keep or rename'):
            Destination(tmp_path / "there", existing="ask")  # type: ignore[arg-type]
        # An exception of `progress` ends the transfer, and is the caller's.
        (root / "large").write_bytes(os.urandom(LARGE))
        receiving = asyncio.ensure_future(receive_files(theirs, tmp_path / "there"))
        with pytest.raises(ZeroDivisionError):
            await send_files(ours, [root], progress=lambda now: 1 / (now.files - now.files))
        with pytest.raises(TransferCutOffError):
            await receiving
        await ours.close()
        with pytest.raises(ClosedError):
            await send_files(ours, [root])


@on_loop
async def test_a_peer_that_transfers_no_files_is_told_apart(tmp_path: Path) -> None:
    async with await tidewire.listen("127.0.0.1:0") as listener:
        ours, theirs = await ends(listener)

        _reader, writer = await ours.open()
        writer.write(b"hello, this is not the file transfer")
        with pytest.raises(TransferError, match="the peer does not transfer files"):
            await receive_files(theirs, tmp_path / "there")
        await ours.close(linger=0)
