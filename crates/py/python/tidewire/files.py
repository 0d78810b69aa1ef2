"""Files and folders over a connection, as `tidewire send` and `receive` transfer them (docs/transfer.md).

Each end may be this package or the command. A transfer takes one stream of its connection. One that was cut
off is resumed by the same transfer over a new connection. Invariant: a file under its final name is whole and
verified.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from tidewire import _native
from tidewire.errors import FilesError
from tidewire.transport import Connection

__all__ = [
    "Destination",
    "FileFailure",
    "FileProgress",
    "FileWarning",
    "Outcome",
    "receive_files",
    "send_files",
]

#: Seconds between two calls of `progress`. Chosen: a bar that moves smoothly.
PROGRESS_INTERVAL = 0.1
#: Failures that the text of an exception names. Chosen: a line that a person reads.
NAMED = 3


@dataclass(frozen=True)
class FileProgress:
    """How far a transfer is.

    Attributes:
        files: files of the transfer, 0 before the sender said so.
        total_bytes: bytes of these files.
        moved_bytes: bytes of files that this transfer carried so far.
        resumed_bytes: bytes that earlier transfers had carried.
        kept: files and folders that are whole at the receiver.
    """

    files: int
    total_bytes: int
    moved_bytes: int
    resumed_bytes: int
    kept: int


@dataclass(frozen=True)
class FileFailure:
    """An entry that did not arrive.

    Attributes:
        path: its path at the destination. It may be the peer's text: escape it before a terminal shows it.
        reason: one of the reasons of docs/transfer.md, as ``no space``.
        detail: what the operating system or the peer said.
        path_bytes: the path, if it is not UTF-8. In ``path`` each byte that is no part of a character is then
            written in hexadecimal, so only these bytes name the file.
    """

    path: str
    reason: str
    detail: str
    path_bytes: bytes | None = None

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}" + (f": {self.detail}" if self.detail else "")


@dataclass(frozen=True)
class FileWarning:
    """What the destination could not do for an entry that arrived: its mode, its time, a flush.

    Attributes:
        path: as in :class:`FileFailure`.
        detail: what could not be done, and why.
        path_bytes: as in :class:`FileFailure`.
    """

    path: str
    detail: str
    path_bytes: bytes | None = None

    def __str__(self) -> str:
        return f"{self.path}: {self.detail}"


@dataclass(frozen=True)
class Outcome:
    """How a transfer ended.

    Attributes:
        kept: files and folders that are whole at the receiver.
        bytes: bytes of these files.
        resumed_bytes: how many of these earlier transfers had carried.
        failed: entries that did not arrive.
        failures: the first 1,000 of them.
        is_damaged: whether one of them had a wrong hash or size.
        warnings: the first 1,000 entries that arrived, and something could not be done for them.
    """

    kept: int
    bytes: int
    resumed_bytes: int
    failed: int
    failures: tuple[FileFailure, ...]
    is_damaged: bool
    warnings: tuple[FileWarning, ...] = ()


class Destination:
    """A folder that receives files, with limits over all transfers into it.

    Several connections may share one. The folder is made, for this user alone, if it is missing; its parent
    has to exist.

    Args:
        folder: where the files go.
        max_bytes: refuse what would exceed so many bytes in all.
        max_files: refuse what would exceed so many files and folders in all.
        existing: what becomes of a file that stands under the name of an arriving one. ``"update"`` replaces
            what the same sender delivered here before, and keeps everything else, which is a failure of the
            arriving file; ``"replace"`` replaces all; ``"keep"`` keeps all; ``"rename"`` renames the
            arriving one.
        links: make the symbolic links that are sent, if they are relative and lead to what lies inside.

    Raises:
        DestinationError: the folder cannot be made or opened.
        ValueError: ``existing`` is none of these words.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        max_bytes: int | None = None,
        max_files: int | None = None,
        existing: Literal["update", "replace", "keep", "rename"] = "update",
        links: bool = False,
    ) -> None:
        self._native = _native.Destination(folder, max_bytes, max_files, existing, links)


async def send_files(
    connection: Connection,
    paths: Iterable[str | os.PathLike[str]],
    *,
    links: Literal["skip", "keep", "follow"] = "skip",
    growing: bool = False,
    progress: Callable[[FileProgress], object] | None = None,
) -> Outcome:
    """Send files and folders to the peer, which receives them.

    Cancelling is safe: what arrived is resumed by the next transfer of the same paths.

    Args:
        connection: of this side.
        paths: files, and folders with everything below them.
        links: symbolic links among them are failures (``"skip"``), sent as links (``"keep"``), or replaced by
            what they lead to, if that lies inside a named path (``"follow"``).
        growing: files may grow while they are sent, as logs do: what they have at the start is sent.
        progress: is called every 0.1 s, and at the end.

    Raises:
        PathsError: two paths have one name at the destination.
        ValueError: ``links`` is none of these words.
        FilesError: some entries did not arrive; ``outcome`` says which.
        TransferCutOffError: the stream ended before the transfer did.
        TransferError: the peer does not speak the protocol.
        ConnectionLostError: the connection is over.
    """
    tally, native = _native.Tally(), connection._native
    named = (list(paths), links, growing)
    bells = connection._open_bells()
    sending = bells.run(lambda bell, token: _native.send_files(native, named, tally, bell, token))
    return await _finish(asyncio.ensure_future(sending), tally, progress)


async def receive_files(
    connection: Connection,
    destination: Destination | str | os.PathLike[str],
    *,
    progress: Callable[[FileProgress], object] | None = None,
) -> Outcome:
    """Receive what the peer sends over its next stream. It waits for that stream.

    Cancelling is safe: what arrived of a file is kept for the next transfer of the peer.

    Args:
        connection: of this side.
        destination: a folder. Give connections that are served at the same time one :class:`Destination`: a
            peer that comes back then takes over what its lost connection was receiving.
        progress: is called every 0.1 s, and at the end.

    Raises:
        DestinationError, FilesError, TransferCutOffError, TransferError, ConnectionLostError: as above.
    """
    bells = connection._open_bells()
    if not isinstance(destination, Destination):
        destination = Destination(destination)
    tally, native, folder = _native.Tally(), connection._native, destination._native
    receiving = bells.run(lambda bell, token: _native.receive_files(native, folder, tally, bell, token))
    return await _finish(asyncio.ensure_future(receiving), tally, progress)


async def _finish(
    running: asyncio.Future[tuple[int, int, int, int, bool]],
    tally: _native.Tally,
    progress: Callable[[FileProgress], object] | None,
) -> Outcome:
    """Wait for a transfer, and tell about it meanwhile."""
    try:
        while not running.done():
            await asyncio.wait([running], timeout=PROGRESS_INTERVAL if progress is not None else None)
            if progress is not None:
                progress(FileProgress(*tally.counts()))
    finally:
        # Given up, or by an exception of `progress`: the transfer ends before this returns.
        running.cancel()
        await asyncio.wait([running])
    kept, size, resumed, failed, is_damaged = running.result()
    failures = tuple(FileFailure(path, reason, detail, raw) for path, raw, reason, detail in tally.failures())
    warnings = tuple(FileWarning(path, detail, raw) for path, raw, detail in tally.warnings())
    outcome = Outcome(kept, size, resumed, failed, failures, is_damaged, warnings)
    if failed == 0:
        return outcome
    words = "; ".join(str(failure) for failure in failures[:NAMED])
    more = f"; and {failed - NAMED} more" if failed > NAMED else ""
    raise FilesError(f"{failed} of {failed + kept} entries did not arrive: {words}{more}", outcome)
