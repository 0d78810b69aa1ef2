"""Every exception of the package.

The texts are those of the command and of the Rust library: what is wrong, the value, and what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidewire.files import Outcome

__all__ = [
    "ArrayError",
    "ClosedError",
    "CodecError",
    "ConnectError",
    "ConnectionLostError",
    "DeficitError",
    "DestinationError",
    "FilesError",
    "ForkError",
    "LoopError",
    "MessageBlockedError",
    "MessageError",
    "ModelError",
    "NoAnswerError",
    "PathsError",
    "PlotError",
    "ScenarioError",
    "SettingError",
    "StreamResetError",
    "StreamStoppedError",
    "SweepError",
    "TidewireError",
    "TransferCutOffError",
    "TransferError",
    "TransportError",
]


class TidewireError(Exception):
    """The base of all exceptions of this package."""


class ArrayError(TidewireError, TypeError):
    """An argument is not memory of the wanted type, order, shape or permission, or overlaps the output."""


class CodecError(TidewireError, ValueError):
    """The codec refused a code, a number or a symbol. Nothing was changed."""


class DeficitError(CodecError):
    """The repair symbols do not determine the lost source symbols.

    Attributes:
        deficit: independent repair symbols that are needed in addition, at least 1.
    """

    def __init__(self, text: str, deficit: int) -> None:
        super().__init__(text)
        self.deficit = deficit

    def __reduce__(self) -> tuple[type[DeficitError], tuple[str, int]]:
        # Exceptions cross processes by pickle, which would pass the text alone.
        return type(self), (str(self), self.deficit)


class ModelError(TidewireError, ValueError):
    """There is no model for a number, for example a loss rate above 1 or more losses than repairs."""


class ScenarioError(TidewireError, ValueError):
    """A scenario is wrong: the text names file, line and key."""


class SweepError(TidewireError, ValueError):
    """A sweep is wrong: cells that are alike, values of another kind, another sweep's folder."""


class PlotError(TidewireError, ValueError):
    """There is nothing to draw: data of another kind, or no data; the text says what is wanted."""


class SettingError(TidewireError, ValueError):
    """A link, an address or a setting of the transport is wrong."""


class TransportError(TidewireError, OSError):
    """The transport failed: the base of the exceptions below."""


class ConnectError(TransportError, ConnectionError):
    """A connection could not be made."""


class NoAnswerError(ConnectError, TimeoutError):
    """Nobody answered: wrong host, port or secret, or UDP is blocked on the path."""


class ConnectionLostError(TransportError, ConnectionResetError):
    """The connection is over; the text says why."""


class StreamResetError(TransportError, ConnectionResetError):
    """The peer gave up what it sent. What was not read before is lost.

    Attributes:
        code: the code of the peer's application.
    """

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code

    def __reduce__(self) -> tuple[type[StreamResetError], tuple[str, int]]:
        return type(self), (str(self), self.code)


class StreamStoppedError(TransportError, BrokenPipeError):
    """The peer reads no more of the stream.

    Attributes:
        code: the code of the peer's application.
    """

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code

    def __reduce__(self) -> tuple[type[StreamStoppedError], tuple[str, int]]:
        return type(self), (str(self), self.code)


class MessageError(TransportError):
    """A message cannot be sent: it is too long, its lane was not opened, or the connection is over."""


class MessageBlockedError(MessageError, TimeoutError):
    """There was no room for a message within its lifetime."""


class PathsError(TidewireError, ValueError):
    """Paths cannot be sent together: two have one name at the destination, or one has none."""


class DestinationError(TransportError):
    """A folder cannot receive files: it cannot be made or opened."""


class TransferError(TransportError):
    """A transfer of files ended early: the peer does not speak the protocol, or breaks it."""


class TransferCutOffError(TransferError, ConnectionResetError):
    """A transfer of files was cut off. The same transfer over a new connection resumes it."""


class FilesError(TransferError):
    """The transfer went to its end, and some entries did not arrive. The others did.

    Attributes:
        outcome: what arrived and what did not, a :class:`tidewire.files.Outcome`.
    """

    def __init__(self, text: str, outcome: Outcome) -> None:
        super().__init__(text)
        self.outcome = outcome

    def __reduce__(self) -> tuple[type[FilesError], tuple[str, Outcome]]:
        return type(self), (str(self), self.outcome)


class ClosedError(TransportError):
    """Something was used after it was closed."""


class LoopError(TidewireError, RuntimeError):
    """An object was used in another event loop than its own."""


class ForkError(TidewireError, RuntimeError):
    """The transport was used in a child of ``fork`` of the process that had started it."""
