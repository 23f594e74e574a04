"""What is too much in a queue whose oldest messages go when it is full."""

import asyncio
from typing import TYPE_CHECKING

from posthouse.broker.queues.dead_letters import Reason
from posthouse.broker.queues.definition import Overflow
from posthouse.broker.queues.message import Message

if TYPE_CHECKING:
    from posthouse.broker.queues.host import QueuesHost
    from posthouse.broker.queues.loading import Loading
    from posthouse.broker.queues.queue import Queue

AT_ONCE = 256
"""So many go in one step."""


class Excess:
    def __init__(self, queue: "Queue", host: "QueuesHost", loading: "Loading") -> None:
        self._queue = queue
        self._host = host
        self._loading = loading
        self.going: asyncio.Task[None] | None = None
        """Nothing is handed out while something goes."""
        self._later: asyncio.TimerHandle | None = None
        """Nothing could be let go: until then, nothing is tried."""
        self._has_taken = False

    def drop(self) -> None:
        """Let the oldest go if there are more than may be."""
        definition = self._queue.definition
        if not definition.is_limited or definition.overflow is not Overflow.DROP_HEAD:
            return
        if self.going is None and self._later is None and not self._queue.is_deleted and self.count():
            self.going = self._queue.namespace.effects.start_step(self._drop(), self._queue)
            self.going.add_done_callback(self._dropped)

    def count(self) -> int:
        """How many have to go; for a limit in bytes one by one."""
        queue, definition = self._queue, self._queue.definition
        waiting = queue.waiting
        if definition.max_length is not None and waiting > definition.max_length:
            return waiting - definition.max_length
        if definition.max_bytes is not None and queue.ready_bytes > definition.max_bytes:
            return min(waiting, 1)
        return 0

    def _dropped(self, task: asyncio.Task[None]) -> None:
        self.going = None
        if task.cancelled() or self._queue.is_deleted:
            return
        if task.exception() is None and self._has_taken:
            self.drop()
        elif self.count():
            self._later = asyncio.get_running_loop().call_later(self._queue.retry_seconds, self._again)
        self._queue.handing_out.plan()

    def _again(self) -> None:
        self._later = None
        self.drop()

    async def _drop(self) -> None:
        """One step, because requests wait for it; `_dropped` sees to the next."""
        await self._queue.returns.done()  # the oldest may be among those
        oldest = await self._oldest()
        self._has_taken = oldest is None or bool(oldest)
        if oldest:
            await self._queue.die(oldest, Reason.TOO_LONG)

    async def _oldest(self) -> list[Message] | None:
        """Of the lowest priority first; None where one has to look again."""
        queue = self._queue
        for lane in queue.lanes:
            if lane.ready <= 0:
                continue
            queue.free_keys()  # those that wait for others of their key may be the oldest
            while lane.is_drained and not queue.is_deleted:
                await self._loading.filled(lane)
            self._loading.plan_reservation()
            await self._loading.reserved()
            if queue.returns.going is not None:
                return None
            if lane.ready <= 0:
                continue  # what is left of it cannot be read
            taken = lane.take(min(self.count(), AT_ONCE))
            return None if not taken and lane.is_drained else taken
        return []
