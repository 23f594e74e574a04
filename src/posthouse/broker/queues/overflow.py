"""Drops the oldest messages of a queue that holds more than it may (`x-overflow: drop-head`)."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from posthouse.broker.queues.definition import QueueDefinition
from posthouse.broker.queues.effects import Effects
from posthouse.broker.queues.message import Message, MessageSource
from posthouse.broker.queues.room import Backlog

AT_ONCE = 256
"""Messages that are dropped in one step."""


class OverflowOwner(Backlog, Protocol):
    """What overflow needs of the dispatcher."""

    async def take_oldest(self, count: Callable[[], int]) -> list[Message] | None:
        """Lease the first `count` in order, of the lowest priority; None where one has to look again."""

    async def drop(self, messages: list[Message]) -> None:
        """Dead-letter or drop messages."""

    def plan(self) -> None:
        """Deliver at the end of the turn."""


class Overflow:
    """Of one queue."""

    def __init__(
        self,
        owner: OverflowOwner,
        source: MessageSource,
        definition: QueueDefinition,
        effects: Effects,
        retry_seconds: float,
    ) -> None:
        self._owner = owner
        self._source = source
        self._effects = effects
        self.definition = definition
        self._retry_seconds = retry_seconds
        self.task: asyncio.Task[None] | None = None
        """While it runs, the queue delivers nothing."""
        self._retry: asyncio.TimerHandle | None = None
        """Set after nothing could be dropped: the next attempt is made then."""
        self._has_taken = False
        self._is_stopped = False

    def check(self) -> None:
        """Drop the oldest messages if the queue is beyond its limit."""
        if self.task is None and self._retry is None and not self._is_stopped and self.count():
            self.task = self._effects.start_step(self._drop(), self._source, self.definition)
            self.task.add_done_callback(self._ended)

    def count(self) -> int:
        """How many messages to drop; for a limit in bytes one at a time."""
        definition = self.definition
        waiting = self._owner.waiting_with(0)
        if definition.max_length is not None and waiting > definition.max_length:
            return waiting - definition.max_length
        if definition.max_bytes is not None and self._owner.ready_bytes > definition.max_bytes:
            return min(waiting, 1)
        return 0

    def stop(self) -> None:
        self._is_stopped = True

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.task = None
        if task.cancelled() or self._is_stopped:
            return
        if task.exception() is None and self._has_taken:
            self.check()
        elif self.count():
            self._retry = asyncio.get_running_loop().call_later(self._retry_seconds, self._try_again)
        self._owner.plan()

    def _try_again(self) -> None:
        self._retry = None
        self.check()

    async def _drop(self) -> None:
        """One step, because requests wait for it; `_ended` starts the next."""
        oldest = await self._owner.take_oldest(lambda: min(self.count(), AT_ONCE))
        self._has_taken = oldest is None or bool(oldest)
        if oldest:
            await self._owner.drop(oldest)
