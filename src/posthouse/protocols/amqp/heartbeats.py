"""Heartbeats of one connection: sends them, and detects a client that is silent."""

import asyncio
from collections.abc import Callable

from posthouse.protocols.amqp.codec import encode
from posthouse.protocols.flow_control import Outbox
from posthouse.protocols.noop import noop


class Heartbeats:
    """No heartbeat is sent while other frames are; any input counts as a heartbeat of the client."""

    def __init__(self, loop: asyncio.AbstractEventLoop, outbox: Outbox, lost: Callable[[], None]) -> None:
        self._loop = loop
        self._outbox = outbox
        self._lost = lost
        self._seconds = 0.0
        self._heard_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.heard = False
        """The connection sets it for every input."""
        self.is_excused = False
        """Reading is paused, so that heartbeats of the client cannot arrive."""

    def start(self, seconds: float) -> None:
        """A client that is silent for twice as long is disconnected; 0 for never."""
        if seconds > 0:
            self._seconds = seconds
            self._heard_at = self._loop.time()
            self._timer = self._loop.call_later(seconds / 2, self._look)

    def stop(self) -> None:
        self._lost = noop
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        now = self._loop.time()
        if self.heard or self.is_excused:
            self.heard = False
            self._heard_at = now
        elif now - self._heard_at >= 2 * self._seconds:
            self._timer = None
            self._lost()
            return
        if not self._outbox.was_used:
            self._outbox.send(encode.HEARTBEAT)
            self._outbox.flush()
        self._outbox.was_used = False
        self._timer = self._loop.call_later(self._seconds / 2, self._look)
