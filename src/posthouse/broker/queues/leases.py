"""Leases that end by themselves: whoever does not settle its messages in time, does not keep them."""

import asyncio
from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from posthouse.broker.queues.message import Message
from posthouse.model.clock import Clock


class Leases:
    """Of one queue. Consumers that stay connected need none: theirs end with the connection."""

    def __init__(self, clock: Clock, ended: Callable[[Sequence[Message]], None]) -> None:
        self._clock = clock
        self._ended = ended
        self._deadlines: dict[Message, float] = {}
        self._heap: list[tuple[float, int, Message]] = []
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._deadlines)

    def set(self, messages: Sequence[Message], seconds: float) -> None:
        """They are leased until so many seconds from now; also to extend what there is."""
        deadline = self._clock.monotonic() + seconds
        for message in messages:
            self._deadlines[message] = deadline
            heappush(self._heap, (deadline, message.position, message))
        self._plan()

    def drop(self, message: Message) -> None:
        """Settled or released."""
        self._deadlines.pop(message, None)

    def end_overdue(self) -> None:
        """Give back what nobody settled in time."""
        now = self._clock.monotonic()
        overdue: list[Message] = []
        while self._heap and self._heap[0][0] <= now:
            deadline, _, message = heappop(self._heap)
            if self._deadlines.get(message) == deadline:  # else it was settled, or extended
                del self._deadlines[message]
                overdue.append(message)
        if overdue:
            self._ended(overdue)
        self._plan()

    def close(self) -> None:
        self._deadlines.clear()
        self._heap.clear()
        self._plan()

    def _plan(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap:
            seconds = max(0.0, self._heap[0][0] - self._clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(seconds, self.end_overdue)
