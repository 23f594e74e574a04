"""Throttling of a connection that exceeded a quota or its share of the event loop."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from posthouse.protocols.noop import noop


class Waits(Protocol):
    """Counts the time that clients are throttled."""

    def waited(self, seconds: float) -> None:
        """A client was throttled once, for that long."""


class ThrottleTimer:
    """`over` is called when the time has passed, `begun` when there is some to wait."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, over: Callable[[], None], begun: Callable[[], None] = noop
    ) -> None:
        self._loop = loop
        self._over = over
        self._begun = begun
        self._timer: asyncio.TimerHandle | None = None
        self._waits: Waits | None = None
        """Counts the wait that began at `_since` and lasts to `_until`; None where no wait is counted."""
        self._since = 0.0
        self._until = 0.0
        self.is_on = False

    def extend(self, seconds: float, waits: Waits | None = None) -> None:
        """Extend the throttle to at least `seconds` from now. `waits` is told of the time when it has passed,
        once for throttles that overlap."""
        if seconds <= 0:
            return
        if waits is not None:
            self._begin_wait(seconds, waits)
        if self._timer is not None:
            if self._timer.when() >= self._loop.time() + seconds:
                return
            self._timer.cancel()
        self.is_on = True
        self._timer = self._loop.call_later(seconds, self._end)
        self._begun()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._end_wait()
        self._over = self._begun = noop

    def _begin_wait(self, seconds: float, waits: Waits) -> None:
        now = self._loop.time()
        if now >= self._until:
            self._end_wait()  # the timer may be on for another reason since then
            self._waits, self._since = waits, now
        self._until = max(self._until, now + seconds)

    def _end_wait(self) -> None:
        waits, self._waits = self._waits, None
        if waits is not None:
            waits.waited(min(self._loop.time(), self._until) - self._since)

    def _end(self) -> None:
        self._timer = None
        self.is_on = False
        self._end_wait()
        self._over()
