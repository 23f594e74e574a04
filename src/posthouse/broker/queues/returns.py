"""What consumers give back: ready again, in the order of its publishing.

Whoever held very many messages gives them back a part at a time, a turn of the event loop for each. Until all
are there nothing is handed out: what follows them would come before them.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from posthouse.broker.queues.dead_letters import Reason
from posthouse.broker.queues.message import Message

if TYPE_CHECKING:
    from posthouse.broker.queues.host import QueuesHost
    from posthouse.broker.queues.queue import Queue

AT_ONCE = 500


class Returns:
    """Of one queue."""

    def __init__(self, queue: "Queue", host: "QueuesHost") -> None:
        self._queue = queue
        self._host = host
        self._waiting: deque[tuple[Message, bool]] = deque()
        self.going: asyncio.Task[None] | None = None
        """Nothing is handed out while something comes."""

    def __len__(self) -> int:
        """How many are as good as ready, but mostly still leased."""
        return len(self._waiting)

    def take(self, messages: Sequence[Message], *, count: bool) -> None:
        """With `count` it has been one more delivery of each."""
        self._waiting.extend((message, count) for message in messages)
        if self.going is not None:
            return
        self._take_part()
        if self._waiting:
            self._start()
        else:
            self._queue.returned()

    def _start(self) -> None:
        if self.going is None:
            self.going = self._host.start(self._take_rest())
            self.going.add_done_callback(self._taken)

    async def done(self) -> None:
        """Return when nothing is on its way back."""
        while self.going is not None:
            await asyncio.wait([self.going])

    def finish(self) -> None:
        """All that is left, now."""
        while self._waiting:
            self._take_part()

    async def _take_rest(self) -> None:
        while self._waiting:
            await asyncio.sleep(0)
            self._take_part()

    def _taken(self, task: asyncio.Task[None]) -> None:
        self.going = None
        if task.cancelled():
            return
        if task.exception() is not None and self._waiting:
            asyncio.get_running_loop().call_later(self._queue.retry_seconds, self._start)
        self._queue.returned()

    def _take_part(self) -> None:
        queue, settling, waiting = self._queue, self._host.settling, self._waiting
        limit = queue.definition.delivery_limit
        exhausted: list[Message] = []
        for _ in range(min(AT_ONCE, len(waiting))):
            message, count = waiting.popleft()
            lane = message.lane
            if lane.leased.get(message.position) is not message:
                continue
            if count:
                message.deliveries = lane.progress.came_back(message.position)
                settling.changed(lane)
            message.redelivered = True
            if limit is not None and message.deliveries > limit:
                exhausted.append(message)
                continue
            lane.give_back(message)
            queue.given_back(message)
        if exhausted:
            queue.die_soon(exhausted, Reason.DELIVERY_LIMIT)
