"""Hands out what a queue has in memory: to its consumers in turn, or to whoever asks for a message."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from posthouse.broker.queues.consumers import Consumers, dealt
from posthouse.broker.queues.dead_letters import Reason
from posthouse.broker.queues.excess import Excess
from posthouse.broker.queues.key_order import KeyOrder
from posthouse.broker.queues.loading import Loading
from posthouse.broker.queues.message import Message

if TYPE_CHECKING:
    from posthouse.broker.queues.host import QueuesHost
    from posthouse.broker.queues.queue import Queue

AT_ONCE = 256
"""So many are handed out in one turn of the event loop."""
_OFFERS = 16
"""So many rounds of loading and handing out a new consumer is waited for."""
LEASED_BYTES = 16 * 1024 * 1024
"""Beyond this, the bodies of messages that are handed out are let go and read again if they come back."""


class HandingOut:
    """Of one queue."""

    def __init__(
        self,
        queue: "Queue",
        host: "QueuesHost",
        consumers: Consumers,
        keys: KeyOrder | None,
        loading: Loading,
        excess: Excess,
    ) -> None:
        self._queue = queue
        self._host = host
        self._consumers = consumers
        self._keys = keys
        self._loading = loading
        self._excess = excess
        self.is_planned = False

    def plan(self) -> None:
        """Hand out what there is at the end of this turn of the event loop."""
        if len(self._consumers) and not self.is_planned:
            self.is_planned = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        """Hand out what is in memory, as far as there is credit."""
        self.is_planned = False
        if self._queue.is_deleted or self._is_changing:
            return
        in_memory = sum(len(lane.window) + len(lane.returned) for lane in self._queue.lanes)
        turns = self._consumers.turns(max(1, min(in_memory, AT_ONCE)))
        if not turns:
            self._excess.drop()  # what they were expected to take
            return
        self._loading.plan_reservation()
        messages = self.take(len(turns))
        if messages:
            served = turns[: len(messages)]
            self._consumers.served(served)
            for consumer, hand in dealt(messages, served):
                consumer.deliver(hand)
            self._let_bodies_go(messages)
            self._queue.room.tell()
            if self._consumers.have_credit:
                # Else whoever raises it plans: a queue that stayed in line would be ahead of others that
                # wait for the same limiter.
                self.plan()
        self._excess.drop()
        self.plan_loading()

    @property
    def _is_changing(self) -> bool:
        """What is too much goes, and what comes back is there, before anybody gets anything."""
        return self._excess.going is not None or self._queue.returns.going is not None

    def plan_loading(self) -> None:
        """More, unless all that is in memory waits for others of its key."""
        if self._keys is None or not self._keys.is_crowded:
            self._loading.plan()

    async def offer(self) -> None:
        """Return when what is ready was offered to the consumers, as far as they have credit."""
        for _ in range(_OFFERS):
            if self._queue.is_deleted or not self._consumers.have_credit:
                return
            self._pump()
            under_way = (
                self._excess.going,
                self._queue.returns.going,
                self._loading.reserving,
                self._loading.filling,
            )
            if waiting := [task for task in under_way if task is not None]:
                await asyncio.wait(waiting)
            elif not any(lane.window or lane.returned for lane in self._queue.lanes):
                return

    def plan_after(self, task: asyncio.Task[None]) -> None:
        """At once, or some time later where it failed: nobody else may come to see to it."""
        if task.exception() is None:
            self.plan()
        elif not self._queue.is_deleted:
            asyncio.get_running_loop().call_later(self._queue.retry_seconds, self.plan)

    def take(self, most: int) -> list[Message]:
        """Leased, the most urgent first."""
        while leased := self._lease(most):
            alive = self._alive(leased)
            admitted = alive if self._keys is None else self._keys.admit(alive)
            self._queue.leased_bytes += sum(message.size for message in admitted)
            if admitted:
                return admitted
        self._loading.plan_reservation()  # what comes next may lie far behind what has expired
        return []

    def _lease(self, most: int) -> list[Message]:
        taken: list[Message] = []
        for lane in reversed(self._queue.lanes):
            taken += lane.take(most - len(taken))
            if len(taken) >= most:
                break
            if (lane.has_more or lane.window) and lane.ready > 0:
                break  # lower priorities wait until these are in memory and may be handed out
        return taken

    def _alive(self, leased: list[Message]) -> list[Message]:
        """Without those whose time has come."""
        now: int | None = None
        expired: list[Message] = []
        for message in leased:
            if message.expires_ms:
                now = now or self._host.clock.now_ms()
                if message.lane.has_expired(message, now):
                    expired.append(message)
        if not expired:
            return leased
        self._queue.leased_bytes += sum(message.size for message in expired)
        self._queue.die_soon(expired, Reason.EXPIRED)
        gone = set(expired)
        return [message for message in leased if message not in gone]

    def _let_bodies_go(self, messages: Sequence[Message]) -> None:
        if self._queue.leased_bytes > LEASED_BYTES:
            for message in messages:
                if message.lane.leased.get(message.position) is message:
                    message.value = None

    async def get(self) -> Message | None:
        """One message, leased; None when there is none. Raises Unavailable."""
        while True:
            if self._queue.is_deleted:
                return None
            if (changing := self._excess.going or self._queue.returns.going) is not None:
                await asyncio.wait([changing])
                continue
            self._loading.plan_reservation()
            taken = self.take(1)
            if taken:
                self._queue.room.tell()
                return taken[0]
            if self._loading.reserving is not None:
                await self._loading.reserved()
            elif self._loading.filling is not None or self._has_more_to_take:
                await self._loading.filled()
            else:
                return None

    @property
    def _has_more_to_take(self) -> bool:
        if self._keys is not None and self._keys.is_crowded:
            return False
        return any(lane.has_more for lane in self._queue.lanes)
