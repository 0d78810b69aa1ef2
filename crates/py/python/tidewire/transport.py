"""Byte streams and messages over UDP across paths that lose packets, under asyncio.

A listener prints a link; whoever has the link connects::

    async with await tidewire.listen("127.0.0.1:0") as listener:
        connection = await tidewire.connect(listener.link(), latency="40ms")
        reader, writer = await connection.open()
        writer.write(b"across a path that loses packets")
        await writer.drain()

Streams are a :class:`asyncio.StreamReader` and a :class:`asyncio.StreamWriter`, with their methods and their
backpressure: ``drain`` waits while the path does not take more, and a reader that is not read stops the
peer's writer. *Messages* have a lifetime: they arrive whole, or not at all when it is over.

Cancelling any ``await`` of this module is safe: nothing that arrived is lost. Every object belongs to the
event loop in which it was made, and to the process: another loop raises
:class:`~tidewire.errors.LoopError`, a child of ``fork`` :class:`~tidewire.errors.ForkError`.

Settings are texts as the command takes them (docs/config.md), for listeners and connections:

==================  ===================================================================================
``latency``         delay that most symbols shall keep, like ``"40ms"``
``deliver``         the part that shall keep it, like ``"99%"``
``max_overhead``    most proactive repair, like ``"30%"`` of the data
``max_rate``        most bits a second, like ``"20mbit"``
``profile``         ``code``, ``redundancy``, ``rate_control``: choices of the transport
``connect_timeout`` ``idle_timeout``, ``keep_alive``: times with a unit; ``keep_alive="off"``
==================  ===================================================================================
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tidewire import _native
from tidewire._bells import Bells, Bound
from tidewire._settings import Settings
from tidewire.errors import ClosedError, TransportError

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self, Unpack

__all__ = ["Connection", "Listener", "Message", "Settings", "connect", "listen"]

#: Bytes that a reader keeps before it stops the peer: twice this. Chosen: a millisecond at 2 Gbit/s, so that
#: the event loop is not the bottleneck of one stream.
READ_LIMIT = 256 * 1024
#: Bytes of one read: as many as a reader keeps, so that its backpressure works after every read.
READ_SIZE = 256 * 1024
#: Bytes that wait in a writer before ``drain`` waits, and below which it goes on. Chosen: as READ_LIMIT.
WRITE_HIGH = 256 * 1024
WRITE_LOW = 64 * 1024
#: Seconds between two looks at what has arrived, when a connection is closed: the first and the last.
LOOKS = (0.001, 0.1)
#: Seconds between two looks at the plan. The transport makes a new one at most four times a second.
EXPLAIN_INTERVAL = 0.5


class _StreamTransport(asyncio.Transport):
    """What asyncio's reader and writer need of a stream. Calls the protocol as the event loop's own do."""

    def __init__(
        self,
        bells: Bells,
        stream: _native.Stream,
        reader: asyncio.StreamReader,
        protocol: asyncio.Protocol,
        connection: Connection,
    ) -> None:
        loop = asyncio.get_running_loop()
        super().__init__({"peername": connection.peername, "connection": connection})
        self._loop, self._bells, self._stream, self._protocol = loop, bells, stream, protocol
        self._reader = reader
        self._waiting: deque[memoryview] = deque()
        self._waiting_bytes = 0
        self._is_paused = self._is_reading_paused = False
        self._has_read_end = self._has_written_end = False
        self._is_ending = self._is_closing = self._is_closed = False
        # The bells outlive a transport that its program has dropped.
        readable, writable = weakref.WeakMethod(self._read), weakref.WeakMethod(self._flush)
        self._tokens = (bells.register(lambda: _call(readable)), bells.register(lambda: _call(writable)))
        weakref.finalize(self, _forget, bells, self._tokens)
        stream.register(bells.bell, *self._tokens)
        protocol.connection_made(self)
        loop.call_soon(self._read)

    def _read(self) -> None:
        """Give what has arrived to the protocol."""
        if self._is_reading_paused or self._has_read_end or self._is_closed:
            return
        try:
            data = self._stream.read(READ_SIZE)
        except TransportError as lost:
            self._fail(lost)
            return
        if data is None:
            return
        if data:
            self._protocol.data_received(data)
            # One read at a time: other callbacks of the event loop get their turn.
            self._loop.call_soon(self._read)
            return
        self._has_read_end = True
        if not self._protocol.eof_received():
            self.close()

    def _flush(self) -> None:
        """Write what waits, as far as the path takes it."""
        if self._is_closed:
            return
        try:
            while self._waiting:
                first = self._waiting[0]
                written = self._stream.write(first, 0)
                self._waiting_bytes -= written
                if written < len(first):
                    self._waiting[0] = first[written:]
                    break
                self._waiting.popleft()
            if self._is_ending and not self._waiting and not self._has_written_end:
                self._has_written_end = self._stream.finish()
        except TransportError as lost:
            self._fail(lost)
            return
        if self._is_paused and self._waiting_bytes <= WRITE_LOW:
            self._is_paused = False
            self._protocol.resume_writing()
        if self._is_closing and self._has_written_end:
            self._close(None)

    def write(self, data: Buffer) -> None:
        """Write now what the path takes, and keep the rest."""
        if self._is_ending:
            raise ClosedError("the stream was ended: nothing can be written after write_eof or close")
        if self._is_closed:
            return
        view = memoryview(data)
        view = view if view.ndim == 1 and view.format == "B" else view.cast("B")
        written = 0
        if not self._waiting:
            try:
                written = self._stream.write(view, 0)
            except TransportError as lost:
                self._fail(lost)
                return
        if written < len(view):
            # The caller may change its buffer once this returns.
            self._waiting.append(memoryview(bytes(view[written:])))
            self._waiting_bytes += len(view) - written
            if not self._is_paused and self._waiting_bytes > WRITE_HIGH:
                self._is_paused = True
                self._protocol.pause_writing()

    def can_write_eof(self) -> bool:
        """Say that one half can end."""
        return True

    def write_eof(self) -> None:
        """End what is written, behind what waits. Reading goes on."""
        self._is_ending = True
        self._flush()

    def close(self) -> None:
        """Stop reading, and close when what waits is written."""
        if not self._is_closing and not self._is_closed:
            self._is_closing = True
            self._is_reading_paused = True
            self.write_eof()

    def abort(self) -> None:
        """Give the stream up: the peer's reads and writes fail with code 0."""
        if not self._is_closed:
            self._stream.abort(0)
            self._close(None)

    def is_closing(self) -> bool:
        """Whether it is closing or closed."""
        return self._is_closing or self._is_closed

    def pause_reading(self) -> None:
        """Leave what arrives to the transport, whose window then stops the peer."""
        self._is_reading_paused = True

    def resume_reading(self) -> None:
        """Read again."""
        if self._is_reading_paused and not self._is_closing:
            self._is_reading_paused = False
            self._loop.call_soon(self._read)

    def is_reading(self) -> bool:
        """Whether it reads."""
        return not self._is_reading_paused and not self._has_read_end

    def get_write_buffer_size(self) -> int:
        """Bytes that wait."""
        return self._waiting_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Bytes below which ``drain`` goes on, and above which it waits."""
        return WRITE_LOW, WRITE_HIGH

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return what reads from this transport."""
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Let another protocol read from this transport."""
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def _fail(self, lost: TransportError) -> None:
        # At once: `drain` raises what the reader has, or a plain ConnectionResetError.
        self._reader.set_exception(lost)
        self._stream.abort(0)
        self._close(lost)

    def _close(self, lost: TransportError | None) -> None:
        self._is_closed = self._is_closing = True
        self._waiting.clear()
        self._waiting_bytes = 0
        _forget(self._bells, self._tokens)
        self._stream.close()
        self._loop.call_soon(self._protocol.connection_lost, lost)


def _call(method: weakref.WeakMethod[Callable[[], None]]) -> None:
    bound = method()
    if bound is not None:
        bound()


def _forget(bells: Bells, tokens: tuple[int, int]) -> None:
    for token in tokens:
        bells.forget(token)


@dataclass(frozen=True)
class Message:
    """A message of the peer.

    Attributes:
        lane: the peer's lane that carried it.
        data: its bytes.
    """

    lane: int
    data: bytes


class Connection(Bound):
    """One encrypted session with a peer. It survives a change of the peer's address.

    :func:`connect` and :meth:`Listener.accept` make it. ``async with`` closes it.
    """

    def __init__(self, native: _native.Connection) -> None:
        super().__init__()
        self._native = native
        self._is_closed = False

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a stream. Waits while the peer allows no more streams.

        Raises:
            ConnectionLostError: the connection is over.
        """
        bells = self._open_bells()
        return self._streams(bells, await bells.run(self._native.open))

    async def accept(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Wait for the next stream that the peer opens; it is seen with its first bytes.

        Raises:
            ConnectionLostError: the connection is over.
        """
        bells = self._open_bells()
        return self._streams(bells, await bells.run(self._native.accept))

    def _streams(
        self, bells: Bells, stream: _native.Stream
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=READ_LIMIT, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport = _StreamTransport(bells, stream, reader, protocol, self)
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    def open_lane(self, *, in_order: bool = False) -> int:
        """Open a lane for messages, and return its number. A connection has at most 15.

        Args:
            in_order: deliver the messages in order.

        Raises:
            TransportError: there are 15 already, or the connection is over.
        """
        self._open_bells()
        return self._native.open_lane(in_order)

    async def send_message(self, lane: int, data: Buffer, lifetime: float) -> None:
        """Send a message. Waits while the lane has no room.

        Args:
            lane: a number of :meth:`open_lane`.
            data: at most 256 KiB.
            lifetime: seconds from now in which it is useful to the peer; after that it is given up.

        Raises:
            MessageBlockedError: there was no room within the lifetime.
            MessageError: the message is too long, the lane was not opened, or the connection is over.
        """
        bells = self._open_bells()
        await bells.run(lambda bell, token: self._native.send_message(lane, data, lifetime, bell, token))

    async def receive_message(self) -> Message:
        """Wait for the next message of any lane. Each lane keeps the newest 1 MiB that nobody takes.

        Raises:
            ConnectionLostError: the connection is over, and all messages were taken.
        """
        return Message(*await self._open_bells().run(self._native.receive_message))

    def stats(self) -> dict[str, Any]:
        """Return the statistics so far, with the names of docs/json.md: counts by name, times in ms."""
        return self._native.stats()

    async def explain(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the planned repair when it begins and when it changes, until the connection is over.

        Each is a dictionary as the event ``explain`` of docs/json.md: ``repair`` (proactive repairs for each
        source symbol), ``late`` (predicted part that misses the target), ``feasible``, what would be
        feasible if it is not, and ``words``, the same as a sentence. Without ``latency`` in the settings
        there may be none.
        """
        over = asyncio.ensure_future(self.closed())
        try:
            while not over.done():
                explained = self._native.explain()
                if explained is not None:
                    yield explained
                await asyncio.wait([over], timeout=EXPLAIN_INTERVAL)
        finally:
            over.cancel()

    @property
    def peername(self) -> tuple[str, int]:
        """The peer's address and port now."""
        return self._native.remote

    @property
    def peer_key(self) -> str | None:
        """The public key that the peer proved to own; None if both sides share a secret."""
        return self._native.peer_key

    @property
    def rtt(self) -> float:
        """The smoothed round trip in seconds; 0 before the first was measured."""
        return self._native.rtt

    async def closed(self) -> str:
        """Wait until the connection is over, and return why."""
        reason: str = await self._bells().run(self._native.closed)
        return reason

    async def close(self, reason: str = "", *, linger: float = 5.0) -> None:
        """Close the connection when the peer's end has what was written, or after `linger` seconds.

        Args:
            reason: words for the peer, at most 255 bytes.
            linger: seconds to wait for the peer; 0 closes at once.
        """
        bells = self._bells()
        if self._is_closed:
            return
        self._is_closed = True
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + linger, LOOKS[0]
        over = asyncio.ensure_future(bells.run(self._native.closed))
        try:
            while loop.time() < deadline and not over.done() and not self._native.has_delivered:
                await asyncio.wait([over], timeout=pause)
                pause = min(2 * pause, LOOKS[1])
        finally:
            over.cancel()
            self._native.abort(reason)
        if self._native.has_socket:
            await bells.run(self._native.close_socket)

    def abort(self, reason: str = "") -> None:
        """Close the connection at once: what is under way may not arrive."""
        self._bells()
        self._is_closed = True
        self._native.abort(reason)

    def _open_bells(self) -> Bells:
        bells = self._bells()
        if self._is_closed:
            raise ClosedError("the connection was closed: connect again")
        return bells

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
        else:
            self.abort()


class Listener(Bound):
    """A UDP socket that accepts connections; :func:`listen` makes it.

    ``async for`` accepts, ``async with`` closes.
    """

    def __init__(self, native: _native.Listener) -> None:
        super().__init__()
        self._native = native
        self._is_closed = False

    @property
    def sockname(self) -> tuple[str, int]:
        """Its address and port."""
        return self._native.address

    def link(self, host: str | None = None) -> str:
        """Return the link for those who connect. It has the secret: pass it on as you would a password.

        Args:
            host: the name or address by which they reach this machine, if it is not the socket's.
        """
        return self._native.link(host)

    async def accept(self) -> Connection:
        """Wait for the next connection.

        Raises:
            ClosedError: the listener was closed.
        """
        bells = self._bells()
        if self._is_closed:
            raise ClosedError("the listener was closed: listen again")
        return Connection(await bells.run(self._native.accept))

    async def close(self) -> None:
        """Close all its connections, and accept no more. Waits until the peers were told, at most 5 s."""
        bells = self._bells()
        if not self._is_closed:
            self._is_closed = True
            await bells.run(self._native.close)

    async def __aiter__(self) -> AsyncIterator[Connection]:
        while True:
            try:
                connection = await self.accept()
            except ClosedError:
                return
            yield connection

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def listen(
    address: str = "0.0.0.0:7700",
    *,
    secret: str | None = None,
    private_key: str | None = None,
    authorized_keys: Iterable[str] = (),
    **settings: Unpack[Settings],
) -> Listener:
    """Listen at an address.

    Args:
        address: IP address and port; port 0 lets the system choose. ``"[::]:7700"`` also takes IPv4.
        secret: the secret that peers know, ``tws1...`` (``tidewire keygen``); a new one unless given.
        private_key: instead of a secret: this side's private key.
        authorized_keys: with it: the public keys that may connect, ``twp1...``.
        settings: see the module.

    Raises:
        SettingError: a setting is wrong.
        TransportError: the address cannot be bound.
    """
    Bells.here()
    return Listener(_native.Listener(address, secret, private_key, list(authorized_keys), dict(settings)))


async def connect(
    link: str,
    *,
    address: str | None = None,
    private_key: str | None = None,
    **settings: Unpack[Settings],
) -> Connection:
    """Connect to the listener of a link.

    Args:
        link: ``tidewire://HOST:PORT/#tws1...``, or with the peer's public key.
        address: local address and port, unless the system shall choose.
        private_key: this side's private key, if the link ends with a public key.
        settings: see the module.

    Raises:
        SettingError: the link or a setting is wrong.
        NoAnswerError: nobody answered within ``connect_timeout``: wrong host, port or secret, or no UDP.
        ConnectError: the host has no address, or the handshake failed.
    """
    texts = dict(settings)
    connecting = Bells.here().run(
        lambda bell, token: _native.connect(link, address, private_key, texts, bell, token)
    )
    return Connection(await connecting)
