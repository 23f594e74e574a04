"""Requeues messages: they are ready again, in the order of their publishing.

Many messages are requeued in parts, one in each turn of the event loop. Until all are ready, the queue
delivers nothing: later messages would overtake them.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from posthouse.broker.progress.progress import ProgressWriter
from posthouse.broker.queues.background import Background
from posthouse.broker.queues.message import Message, MessageSource

AT_ONCE = 500


class RequeueOwner(Protocol):
    """What requeueing needs of the dispatcher."""

    def requeued(self, message: Message) -> None:
        """A leased message is ready again."""

    def exhausted(self, messages: Sequence[Message]) -> None:
        """Messages have reached the delivery limit."""

    def requeue_ended(self) -> None:
        """All messages are requeued."""


class Requeue:
    """Of one queue."""

    def __init__(
        self,
        owner: RequeueOwner,
        source: MessageSource,
        background: Background,
        progress_writer: ProgressWriter,
        delivery_limit: int | None,
        retry_seconds: float,
    ) -> None:
        self._owner = owner
        self._source = source
        self._background = background
        self._progress_writer = progress_writer
        self._delivery_limit = delivery_limit
        self._retry_seconds = retry_seconds
        self._waiting: deque[tuple[Message, bool]] = deque()
        self.task: asyncio.Task[None] | None = None
        """While it runs, the queue delivers nothing."""

    def __len__(self) -> int:
        """Messages that count as ready, although most of them are still leased."""
        return len(self._waiting)

    def add(self, messages: Sequence[Message], *, count: bool = True, delay_ms: int = 0) -> None:
        """Requeue messages after `delay_ms`. With `count`, count one more delivery of each."""
        if delay_ms > 0:
            loop = asyncio.get_running_loop()
            loop.call_later(delay_ms / 1000, lambda: self.add(messages, count=count))
            return
        self._waiting.extend((message, count) for message in messages)
        if self.task is not None:
            return
        self._requeue_part()
        if self._waiting:
            self._start()
        else:
            self._owner.requeue_ended()

    def retry(self, messages: Sequence[Message]) -> None:
        """They could not leave the queue: they are ready again after a while, without counting a delivery."""
        self.add(messages, count=False, delay_ms=int(self._retry_seconds * 1000))

    def _start(self) -> None:
        if self.task is None:
            self.task = self._background.start(self._requeue_rest(), self._source)
            self.task.add_done_callback(self._ended)

    async def done(self) -> None:
        """Return when all messages are requeued."""
        while self.task is not None:
            await asyncio.wait([self.task])

    def finish(self) -> None:
        """Requeue all that is left, now."""
        while self._waiting:
            self._requeue_part()

    async def _requeue_rest(self) -> None:
        while self._waiting:
            await asyncio.sleep(0)
            self._requeue_part()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.task = None
        if task.cancelled():
            return
        if task.exception() is not None and self._waiting:
            asyncio.get_running_loop().call_later(self._retry_seconds, self._start)
        self._owner.requeue_ended()

    def _requeue_part(self) -> None:
        waiting, limit = self._waiting, self._delivery_limit
        exhausted: list[Message] = []
        for _ in range(min(AT_ONCE, len(waiting))):
            message, count = waiting.popleft()
            if not message.is_leased:
                continue
            lane = message.lane
            if count:
                message.deliveries = lane.progress.came_back(message.position)
                self._progress_writer.changed(lane)
            message.redelivered = True
            if limit is not None and message.deliveries > limit:
                exhausted.append(message)
                continue
            lane.requeue(message)
            self._owner.requeued(message)
        if exhausted:
            self._owner.exhausted(exhausted)
