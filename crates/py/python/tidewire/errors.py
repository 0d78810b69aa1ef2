"""Every exception of the package.

The texts are those of the command and of the Rust library: what is wrong, the value, and what to do.
"""

from __future__ import annotations

__all__ = ["ArrayError", "CodecError", "DeficitError", "ModelError", "TidewireError"]


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
