"""What wakes an event loop when a native operation can go on, and objects that belong to one loop.

`transport` and `_stream` use it. Invariant: one native bell for each event loop, which its loop watches.
"""

from __future__ import annotations

import asyncio
import itertools
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

from tidewire import _native
from tidewire.errors import LoopError


class Bells:
    """What one event loop watches: the native bell, and whom each token wakes."""

    _of_loops: ClassVar[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Bells]] = (
        weakref.WeakKeyDictionary()
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.bell = _native.Bell()
        self._next = itertools.count()
        self._wake: dict[int, Callable[[], object]] = {}
        loop.add_reader(self.bell.fileno(), self._ring)

    @classmethod
    def here(cls) -> Bells:
        """Return that of the running event loop."""
        loop = asyncio.get_running_loop()
        try:
            return cls._of_loops[loop]
        except KeyError:
            return cls._of_loops.setdefault(loop, cls(loop))

    def _ring(self) -> None:
        for token in self.bell.drain():
            wake = self._wake.get(token)
            if wake is not None:
                wake()

    def register(self, wake: Callable[[], object]) -> int:
        """Return a token that calls `wake` on the event loop."""
        token = next(self._next)
        self._wake[token] = wake
        return token

    def forget(self, token: int) -> None:
        """Take a token back."""
        self._wake.pop(token, None)

    async def run(self, start: Callable[[_native.Bell, int], _native.Operation]) -> Any:
        """Poll a native operation to its end. A cancelled one is given up, and has taken nothing."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] | None = None

        def wake() -> None:
            if waiter is not None and not waiter.done():
                waiter.set_result(None)

        token = self.register(wake)
        try:
            operation = start(self.bell, token)
            try:
                while True:
                    answer = operation.poll()
                    if answer is not None:
                        return answer[0]
                    waiter = loop.create_future()
                    await waiter
            finally:
                operation.cancel()
        finally:
            self.forget(token)


class Bound:
    """An object of one event loop."""

    def __init__(self) -> None:
        self._loop = weakref.ref(asyncio.get_running_loop())

    def _bells(self) -> Bells:
        """Return the bells of the running event loop, which has to be this object's own."""
        if asyncio.get_running_loop() is not self._loop():
            kind = type(self).__name__.lower()
            raise LoopError(
                f"this {kind} belongs to another event loop: use it in the loop in which it was made"
            )
        return Bells.here()
