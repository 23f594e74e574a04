"""Throttling of a connection that exceeded a quota or its share of the event loop."""

import asyncio
from collections.abc import Callable

from posthouse.protocols.noop import noop


class ThrottleTimer:
    """`over` is called when the time has passed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, over: Callable[[], None]) -> None:
        self._loop = loop
        self._over = over
        self._timer: asyncio.TimerHandle | None = None
        self.is_on = False

    def extend(self, seconds: float) -> None:
        """Extend the throttle to at least `seconds` from now."""
        if seconds <= 0:
            return
        if self._timer is not None:
            if self._timer.when() >= self._loop.time() + seconds:
                return
            self._timer.cancel()
        self.is_on = True
        self._timer = self._loop.call_later(seconds, self._end)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._over = noop

    def _end(self) -> None:
        self._timer = None
        self.is_on = False
        self._over()
