"""The native part of the package. Import its parts from `tidewire.codec` and `tidewire.model`."""

import os
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, TypeVar, final, overload

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

__all__ = [
    "Bell",
    "Connection",
    "DecodePlan",
    "Decoder",
    "Destination",
    "Encoder",
    "Generation",
    "Listener",
    "Operation",
    "Recoder",
    "Stream",
    "Tally",
    "asking",
    "connect",
    "fairness",
    "gilbert",
    "grid_cells",
    "least_redundancy",
    "receive_files",
    "send_files",
    "simulate",
    "simulate_network",
    "sphinx",
    "streaming",
]

_Bytes: TypeAlias = npt.NDArray[np.uint8]
# numpy declares its arrays as buffers from Python 3.12 on only.
_Buffer: TypeAlias = Buffer | npt.NDArray[Any]
_Symbols: TypeAlias = _Buffer | Sequence[_Buffer]
_Floats: TypeAlias = npt.NDArray[np.float64]
_Out = TypeVar("_Out", bound=_Symbols)
_Reception: TypeAlias = Literal["innovative", "redundant", "stale"]

@final
class Generation:
    """A block of `count` source symbols under a code, with the ids `first`, `first + 1`, ...

    Immutable; threads may share it. Source: `Generation` of the crate tidewire-codec, docs/coding.md.

    Raises:
        CodecError: no such code, `count` is 0, or the code has no blocks that long: 255 for `cauchy`,
            1,024 for `raptorq`, 32,768 for `rs-fft`.
    """

    def __new__(cls, code: str, count: int, *, first: int = 0) -> Generation: ...
    @property
    def code(self) -> str:
        """The name of the code, with its parameters if they are not the usual ones."""
    @property
    def count(self) -> int:
        """Source symbols in the block."""
    @property
    def first(self) -> int:
        """The id of the first source symbol."""
    @overload
    def encode(self, sources: _Symbols, repairs: int, *, first_key: int = 0, out: None = None) -> _Bytes: ...
    @overload
    def encode(self, sources: _Symbols, repairs: None = None, *, first_key: int = 0, out: _Out) -> _Out:
        """Make the repair symbols with the keys `first_key`, `first_key + 1`, ...

        Args:
            sources: the `count` source symbols: shape (count, bytes), or a list. Shorter ones of a list
                count as padded with zeros.
            repairs: how many to make. Multiples of four are most efficient.
            first_key: the key of the first, 0 to 65,535.
            out: writable memory for them instead of `repairs`: shape (repairs, bytes), or a list.

        Returns:
            The repair symbols, shape (repairs, bytes): `out` if it was given. They are as long as the
            longest source symbol, and one byte longer where the field GF(2^16) asks for an even length.

        Raises:
            ArrayError: an argument has a wrong type, order, shape or permission, or `out` overlaps.
            CodecError: lengths contradict each other, or the code has no such key.
        """
    def plan(self, lost: Sequence[int], keys: Sequence[int]) -> DecodePlan:
        """Plan how to decode the source symbols `lost` (indices from 0) with the repair symbols `keys`.

        There may be more keys than losses: the plan uses the first independent ones. The cost is cubic in
        the number of losses; a plan serves any number of blocks with the same losses.

        Raises:
            DeficitError: the repair symbols do not determine the lost ones.
            CodecError: an index or key is out of range or named twice.
        """

@final
class DecodePlan:
    """How to decode one pattern of losses. Immutable; `Generation.plan` makes it."""

    @property
    def lost(self) -> list[int]:
        """The indices of the source symbols that it decodes, in the order given."""
    @property
    def used(self) -> list[int]:
        """The repair symbols that it uses, as indices into `keys`: one for each lost symbol."""
    @overload
    def decode(self, sources: _Symbols, repairs: _Symbols, *, out: None = None) -> _Bytes: ...
    @overload
    def decode(self, sources: _Symbols, repairs: _Symbols, *, out: _Out) -> _Out:
        """Decode the lost symbols.

        Args:
            sources: a place for each source symbol: shape (count, bytes), or a list. Those of lost
                symbols are ignored.
            repairs: a place for each key of the plan, all of one length.
            out: writable memory: shape (lost, bytes), or a list.

        Returns:
            The lost symbols in the order of `lost`, shape (lost, bytes): `out` if it was given.

        Raises:
            ArrayError, CodecError: as for `Generation.encode`.
        """
    def restore(self, sources: _Symbols, repairs: _Symbols) -> None:
        """Decode the lost symbols into their places in `sources`, which is writable.

        Raises:
            ArrayError, CodecError: as for `Generation.encode`.
        """

@final
class Encoder:
    """The sliding window of a sender: source symbols until they are released, and repairs over any span.

    Args of the constructor: bytes of the longest symbol (rounded up to a multiple of 64), and the number of
    symbols held (rounded up to a power of two); at most 4 GiB together.

    Raises:
        CodecError: a number is 0, or the window would be larger than 4 GiB.
    """

    def __new__(cls, symbol_bytes: int, capacity: int) -> Encoder: ...
    @property
    def window(self) -> tuple[int, int]:
        """The ids held: from the first that is not released to the one that comes next."""
    @property
    def capacity(self) -> int:
        """Most symbols held."""
    @property
    def symbol_bytes(self) -> int:
        """Bytes of the longest symbol."""
    @property
    def memory(self) -> int:
        """Bytes of memory held."""
    def push(self, symbol: _Buffer) -> int:
        """Copy the next source symbol into the window. Returns its id, from 0.

        Raises:
            CodecError: the symbol is empty or too long, or the window is full.
        """
    def symbol(self, id: int) -> bytes | None:  # noqa: A002
        """A copy of a source symbol of the window, or None."""
    @overload
    def repair(
        self, code: str, first: int, count: int, key: int, repairs: int | None = None, *, out: None = None
    ) -> _Bytes: ...
    @overload
    def repair(self, code: str, first: int, count: int, key: int, repairs: None = None, *, out: _Out) -> _Out:
        """Make repair symbols over the source symbols `first` to `first + count - 1`.

        Args:
            code: `rlc`, `rlc8681` or `cauchy`.
            first: the first id of the span.
            count: its length, at least 1.
            key: the key of the first repair symbol; the others have the next ones.
            repairs: how many; 1 unless given.
            out: writable memory for them, as long as the longest symbol of the span or longer.

        Returns:
            Shape (repairs, bytes), as long as the longest source symbol of the span.

        Raises:
            CodecError: the code is for generations only or has no such key, or the span is not in the window.
            ArrayError: `out` is not writable bytes, or too short.
        """
    def release_before(self, id: int) -> None:  # noqa: A002
        """Forget all symbols below `id`."""

@final
class Decoder:
    """Reorder buffer, decoder and read buffer of a receiver of packets.

    Args of the constructor: bytes of the longest symbol, number of symbols held (as for `Encoder`), the
    longest span of a repair symbol, and the most unsolved rows, in symbols. Memory is at most
    `capacity * (symbol_bytes + 88) + max_rows * 4 * max_span` bytes.

    `innovative` symbols raised the rank, `redundant` ones were known, `stale` ones are over.
    """

    def __new__(
        cls, symbol_bytes: int, capacity: int, *, max_span: int = 64, max_rows: int = 64
    ) -> Decoder: ...
    def receive_source(self, id: int, symbol: _Buffer) -> _Reception:  # noqa: A002
        """Take a source symbol.

        Raises:
            CodecError: it is empty, too long, not below `limit`, or contradicts what is held.
        """
    def receive_repair(self, code: str, first: int, count: int, key: int, symbol: _Buffer) -> _Reception:
        """Take a repair symbol over `count` source symbols from `first`.

        Raises:
            CodecError: the span is longer than `max_span`, reaches `limit`, or the symbol contradicts.
        """
    def receive_recoded(self, first: int, coefficients: _Buffer, symbol: _Buffer) -> _Reception:
        """Take a symbol of a relay, with its coefficients from the id `first` on.

        Raises:
            CodecError: as for `receive_repair`, or all coefficients are 0.
        """
    def poll_decoded(self) -> tuple[int, bool] | None:
        """The next id that became readable, the lowest first, and whether it was decoded from repairs."""
    def symbol(self, id: int) -> bytes | None:  # noqa: A002
        """A copy of a readable symbol, or None. A repaired one may end in zeros."""
    def skip_before(self, id: int) -> int:  # noqa: A002
        """Give up the missing symbols below `id`. Returns the most rows that this may have cost."""
    @property
    def edge(self) -> int:
        """The lowest id that is neither decoded nor given up."""
    @property
    def end(self) -> int:
        """One past the highest id seen."""
    @property
    def limit(self) -> int:
        """The first id that is refused: edge plus capacity."""
    @property
    def deficit(self) -> int:
        """Independent symbols that are needed to decode all ids seen."""
    @property
    def missing(self) -> list[tuple[int, int]]:
        """Runs of missing ids between edge and end: first id and one past the last."""
    @property
    def memory(self) -> int:
        """Bytes of memory held."""

@final
class Recoder:
    """A relay: keeps the independent symbols of one generation, and mixes new ones.

    Args of the constructor: bytes of the longest symbol, and most source symbols of a generation.
    """

    def __new__(cls, symbol_bytes: int, max_count: int) -> Recoder: ...
    def begin(self, first: int, count: int) -> None:
        """Forget everything and begin the generation of `count` symbols from the id `first`.

        Raises:
            CodecError: the generation is empty or longer than `max_count`.
        """
    def receive_source(self, id: int, symbol: _Buffer) -> _Reception:  # noqa: A002
        """Take a source symbol of the generation."""
    def receive_repair(self, code: str, first: int, count: int, key: int, symbol: _Buffer) -> _Reception:
        """Take a repair symbol over a span of the generation."""
    def receive_recoded(self, first: int, coefficients: _Buffer, symbol: _Buffer) -> _Reception:
        """Take a symbol of another relay."""
    def recode(self, key: int) -> tuple[_Bytes, _Bytes]:
        """Mix a new symbol from all that is held: its coefficients, one for each source symbol, and itself.

        Raises:
            CodecError: nothing is held.
        """
    @property
    def rank(self) -> int:
        """Independent symbols held."""
    @property
    def memory(self) -> int:
        """Bytes of memory held."""

def streaming(quantity: str, inputs: Sequence[_Floats], out: npt.NDArray[Any]) -> None:
    """Write a quantity of the streaming code for each loss, spacing and argument to `out`."""

def gilbert(quantity: str, inputs: Sequence[_Floats], out: npt.NDArray[Any]) -> None:
    """Write a quantity for each loss, burst, spacing and argument to `out`."""

def asking(quantity: str, inputs: Sequence[_Floats], out: npt.NDArray[Any]) -> None:
    """Write a quantity for each loss, burst, answer and argument to `out`."""

def sphinx(
    quantity: str, printed: bool, ceiling: bool, inputs: Sequence[_Floats], out: npt.NDArray[Any]
) -> None:
    """Write a quantity for each number of symbols, loss, deviation, argument and burst to `out`."""

def fairness(quantity: str, throughputs: _Floats, inputs: Sequence[_Floats], out: npt.NDArray[Any]) -> None:
    """Write a quantity for each row of throughputs, number of coded flows and throughput alone to `out`."""

def least_redundancy(inputs: Sequence[_Floats], out: npt.NDArray[Any]) -> None:
    """Write 1/(1 - loss) for each loss to `out`."""

@final
class Bell:
    """Tells an event loop which operations can go on: a descriptor and tokens."""

    def __new__(cls) -> Bell: ...
    def fileno(self) -> int:
        """Return the descriptor that is readable when there are tokens."""
    def drain(self) -> list[int]:
        """Take the tokens that were rung."""

@final
class Operation:
    """Something that waits. Its event loop polls it when its token was rung."""

    def poll(self) -> tuple[Any] | None:
        """Go on: a tuple with the result, or None if it has to wait."""
    def cancel(self) -> None:
        """Give it up."""

@final
class Stream:
    """Both halves of a stream, without waiting."""

    def register(self, bell: Bell, readable: int, writable: int) -> None:
        """Say which token is rung when there is something to read, and which when there is room."""
    def read(self, most: int) -> bytes | None:
        """Take at most `most` bytes, none at the end; None if there are none now."""
    def write(self, data: _Buffer, offset: int) -> int:
        """Write what there is room for from `offset` on, and return the number of bytes."""
    def finish(self) -> bool:
        """End what is written; False if that has to wait."""
    def abort(self, code: int) -> None:
        """Give both halves up with this code."""
    def close(self) -> None:
        """Let both halves go."""

@final
class Connection:
    """A session with a peer. See `tidewire.transport.Connection`."""

    def open(self, bell: Bell, token: int) -> Operation:
        """Open a stream."""
    def accept(self, bell: Bell, token: int) -> Operation:
        """Accept a stream."""
    def open_lane(self, in_order: bool) -> int:
        """Open a lane of messages."""
    def send_message(self, lane: int, data: _Buffer, seconds: float, bell: Bell, token: int) -> Operation:
        """Send a message that is useful for this many seconds."""
    def receive_message(self, bell: Bell, token: int) -> Operation:
        """Wait for a message: its lane and its bytes."""
    def abort(self, reason: str) -> None:
        """End the connection at once."""
    @property
    def has_socket(self) -> bool:
        """Whether this side opened the socket."""
    def close_socket(self, bell: Bell, token: int) -> Operation:
        """Close the socket when the peer was told."""
    def closed(self, bell: Bell, token: int) -> Operation:
        """Wait until the connection is over: why."""
    @property
    def has_delivered(self) -> bool:
        """Whether the peer's end has everything that was written to streams."""
    @property
    def rtt(self) -> float:
        """The smoothed round trip in seconds."""
    @property
    def remote(self) -> tuple[str, int]:
        """The peer's address."""
    @property
    def peer_key(self) -> str | None:
        """The peer's public key."""
    def stats(self) -> dict[str, Any]:
        """Return the statistics."""
    def explain(self) -> dict[str, Any] | None:
        """Return the plan of repair if it is news."""

@final
class Destination:
    """A folder that receives files. See `tidewire.files.Destination`."""

    def __new__(
        cls,
        folder: str | os.PathLike[str],
        max_bytes: int | None,
        max_files: int | None,
        existing: str,
        links: bool,
    ) -> Destination: ...

@final
class Tally:
    """What a transfer of files has done so far."""

    def __new__(cls) -> Tally: ...
    def counts(self) -> tuple[int, int, int, int, int]:
        """Return files and bytes in all, bytes moved, bytes carried before, entries kept."""
    def failures(self) -> list[tuple[str, bytes | None, str, str]]:
        """Return what did not arrive: path, its bytes if they are no text, reason and detail."""
    def warnings(self) -> list[tuple[str, bytes | None, str]]:
        """Return what could not be done for entries: path, its bytes if they are no text, words."""

def send_files(
    connection: Connection,
    named: tuple[Sequence[str | os.PathLike[str]], str, bool],
    tally: Tally,
    bell: Bell,
    token: int,
) -> Operation:
    """Send paths, with `links` and `growing`.

    Gives entries kept, their bytes, bytes carried before, entries that failed, whether damaged.
    """

def receive_files(
    connection: Connection, destination: Destination, tally: Tally, bell: Bell, token: int
) -> Operation:
    """Receive files: as `send_files`."""

@final
class Listener:
    """A socket that accepts. See `tidewire.transport.Listener`."""

    def __new__(
        cls,
        address: str,
        secret: str | None,
        private_key: str | None,
        authorized_keys: Sequence[str],
        settings: dict[str, Any],
    ) -> Listener: ...
    @property
    def address(self) -> tuple[str, int]:
        """Its address and port."""
    def link(self, host: str | None) -> str:
        """Return its link."""
    def accept(self, bell: Bell, token: int) -> Operation:
        """Accept a connection."""
    def close(self, bell: Bell, token: int) -> Operation:
        """Close it."""

def connect(
    link: str,
    address: str | None,
    private_key: str | None,
    settings: dict[str, Any],
    bell: Bell,
    token: int,
) -> Operation:
    """Connect to a link: a `Connection`."""

def simulate(text: str, file: str, seed: int | None, limit: float) -> dict[str, Any]:
    """Run the text of a scenario file for at most `limit` virtual seconds. `file` is its name in errors."""

def simulate_network(text: str, file: str, seed: int | None, limit: float) -> list[dict[str, Any]]:
    """Run a network. See `tidewire.simulator.simulate_network`."""

def grid_cells(part: str) -> list[dict[str, Any]]:
    """Return the cells of the grid: `core` or `around`."""
