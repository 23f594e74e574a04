"""Fairness among connections: a client that sent much at once waits while others are read from.

Event loops read a socket as long as it has data: one that is always full would starve the other connections.
"""

import asyncio
from collections.abc import Callable
from typing import Final

TURN_BYTES: Final = 64 * 1024
"""A client that sent more at once is not read from for `_TURNS` turns of the event loop."""
_TURNS: Final = 4
"""About as many as a message takes on its way to a consumer. Turns without work cost nothing."""


class OthersTurns:
    """Of one connection."""

    __slots__ = ("_loop", "left")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.left = 0
        """Turns of the event loop in which only others are read from."""

    def begin(self, over: Callable[[], None]) -> None:
        """`over` is called when the connection may be read from again."""
        self.left = _TURNS
        self._loop.call_soon(self._next, over)

    def _next(self, over: Callable[[], None]) -> None:
        self.left -= 1
        if self.left:
            self._loop.call_soon(self._next, over)
        else:
            over()
