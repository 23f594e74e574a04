"""Quotas on one connection: how long it waits for what it has sent, and for what it was sent."""

import asyncio
from collections.abc import Callable

from posthouse.broker.access.quotas import Quota, Quotas
from posthouse.protocols.noop import noop
from posthouse.protocols.stopwatch import Stopwatch


class Pause:
    def __init__(self, loop: asyncio.AbstractEventLoop, over: Callable[[], None]) -> None:
        self._loop = loop
        self._over = over
        self._timer: asyncio.TimerHandle | None = None
        self.is_on = False

    def last(self, seconds: float) -> None:
        """From now on, unless it lasts for longer already."""
        if seconds <= 0:
            return
        if self._timer is not None and self._timer.when() >= self._loop.time() + seconds:
            return
        self.cancel()
        self.is_on = True
        self._timer = self._loop.call_later(seconds, self._end)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        self.cancel()
        self._over = noop

    def _end(self) -> None:
        self._timer = None
        self.is_on = False
        self._over()


class Throttle:
    """`read_on` and `deliver_again` are called when a pause is over."""

    def __init__(
        self,
        quotas: Quotas,
        loop: asyncio.AbstractEventLoop,
        *,
        read_on: Callable[[], None],
        deliver_again: Callable[[], None],
    ) -> None:
        self._quotas = quotas
        self._user = ""
        self._client = ""
        self.stopwatch = Stopwatch()
        """To run while the client's requests are worked on."""
        self.reading = Pause(loop, read_on)
        self.deliveries = Pause(loop, deliver_again)

    def is_for(self, user: str, client: str) -> None:
        """Who pays."""
        self._user = user
        self._client = client

    @property
    def is_on(self) -> bool:
        return not self._quotas.is_empty

    def written(self, size: int) -> None:
        """So many bytes of messages came."""
        self.reading.last(self._quotas.take(Quota.WRITTEN, self._user, self._client, size))

    def delivered(self, size: int) -> None:
        self.deliveries.last(self._quotas.take(Quota.READ, self._user, self._client, size))

    def gotten(self, size: int) -> None:
        """One message that was asked for: whoever asks again has to wait."""
        self.reading.last(self._quotas.take(Quota.READ, self._user, self._client, size))

    def worked(self) -> None:
        """For as long as the stopwatch says, since the last time."""
        seconds, self.stopwatch.seconds = self.stopwatch.seconds, 0.0
        self.reading.last(self._quotas.take(Quota.TIME, self._user, self._client, seconds))

    def close(self) -> None:
        self.reading.close()
        self.deliveries.close()
