"""Whether the client is still there, and telling it that we are."""

import asyncio
from collections.abc import Callable

from posthouse.protocols.amqp.codec import encode
from posthouse.protocols.noop import noop
from posthouse.protocols.outbox import Outbox


class Heartbeats:
    """Nothing is sent to a client that was written to anyway; and whatever it sends is a sign of life."""

    def __init__(self, loop: asyncio.AbstractEventLoop, outbox: Outbox, lost: Callable[[], None]) -> None:
        self._loop = loop
        self._outbox = outbox
        self._lost = lost
        self._seconds = 0.0
        self._heard_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.heard = False
        """To be set with everything that comes."""
        self.is_excused = False
        """The client is not read from, so it cannot be heard."""

    def start(self, seconds: float) -> None:
        """Silence of twice as long is taken for the end; 0 for never."""
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
