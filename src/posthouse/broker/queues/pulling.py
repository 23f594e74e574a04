"""Clients that poll a queue: they wait for messages, and their leases end at a deadline.

Consumers that stay connected need no deadlines: their leases end with the connection.
"""

import asyncio
import math
from collections.abc import Callable, Sequence

from posthouse.broker.progress.deadlines import Deadlines
from posthouse.broker.queues.message import Message
from posthouse.model.clock import Clock


class Pulling:
    """Of one queue."""

    def __init__(self, clock: Clock, leases_ended: Callable[[Sequence[Message]], None]) -> None:
        self._clock = clock
        self._leases_ended = leases_ended
        self.is_used = False
        """Whether the queue was ever polled: most are not."""
        self._waiting: list[asyncio.Future[None]] = []
        self._deadlines: Deadlines[Message] = Deadlines()
        self._timer: asyncio.TimerHandle | None = None

    # Waiting

    async def wait(self, seconds: float) -> bool:
        """Whether there may be a message before the time is over."""
        self.is_used = True
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        try:
            # Not `wait_for`: in Python 3.11 it swallows a cancellation that comes right after `wake`.
            await asyncio.wait({waiting}, timeout=max(seconds, 0.0))
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
        return waiting.done()

    def wake(self) -> None:
        woken, self._waiting = self._waiting, []
        for waiting in woken:
            if not waiting.done():
                waiting.set_result(None)

    # Leases

    def lease(self, messages: Sequence[Message], seconds: float) -> None:
        """Let the leases end `seconds` from now; also extends them."""
        self.is_used = True
        deadline = self._clock.monotonic() + seconds
        for message in messages:
            self._deadlines.set(message, deadline)
        self._plan()

    def drop(self, message: Message) -> None:
        """The message was settled or released."""
        self._deadlines.drop(message)

    def end_overdue(self) -> None:
        """End the leases of messages that were not settled in time."""
        if overdue := self._deadlines.overdue(self._clock.monotonic()):
            self._leases_ended(overdue)
        self._plan()

    def close(self) -> None:
        """The queue is deleted."""
        self._deadlines.clear()
        self._plan()
        self.wake()

    def _plan(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if math.isfinite(self._deadlines.next):
            seconds = max(0.0, self._deadlines.next - self._clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(seconds, self.end_overdue)
