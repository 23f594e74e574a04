"""Messages whose time has come, wherever in the queue they are."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from posthouse.broker.queues.dead_letters import Reason
from posthouse.broker.queues.lane import Lane
from posthouse.broker.queues.reading import LaneReader
from posthouse.records.references import NEVER

if TYPE_CHECKING:
    from posthouse.broker.queues.host import QueuesHost
    from posthouse.broker.queues.queue import Queue

_SHORT = 64
"""So many positions a span has at the most when it was looked at once, unless they expire together."""
_REFERENCE = 128
"""Bytes of a batch with one reference, roughly: of a short span no more is read than that."""


_AT_ONCE = 256
"""So many messages go in one step, or somewhat more,"""
_COMMITS = 8
"""with no more commits than this."""
_CLAIMED_MS = 1000
"""So long a consumer has to take what it was ready for."""


class Expiring:
    def __init__(self, queue: "Queue", host: "QueuesHost", new_reader: Callable[[Lane], LaneReader]) -> None:
        self._queue = queue
        self._host = host
        self._new_reader = new_reader
        self._timer: asyncio.TimerHandle | None = None
        self._is_under_way = False

    def plan(self) -> None:
        """Look at the queue when the next message may have to go."""
        if self._is_under_way or self._queue.is_deleted:
            return
        self.stop()
        times = (lane.expiries.earliest for lane in self._queue.lanes)
        earliest = min((at for at in times if at is not None), default=None)
        if earliest is not None:
            seconds = (earliest - self._host.clock.now_ms()) / 1000
            if seconds <= 0:
                self._begin()
            else:
                self._timer = asyncio.get_running_loop().call_later(seconds, self._begin)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self) -> None:
        self._timer = None
        if not self._is_under_way and not self._queue.is_deleted:
            self._is_under_way = True
            step = self._queue.namespace.effects.start_step(self._step(), self._queue)
            step.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._is_under_way = False
        self.plan()

    async def expire(self) -> None:
        """Look at every span of messages whose time may have come."""
        while self._is_due:
            await self._step()

    @property
    def _is_due(self) -> bool:
        now = self._host.clock.now_ms()
        times = (lane.expiries.earliest for lane in self._queue.lanes)
        return any(at is not None and at <= now for at in times)

    async def _step(self) -> None:
        """Look at one span; requests wait for a step, and not for all that follow it."""
        for lane in self._queue.lanes:
            if not self._queue.has_credit:
                lane.unclaim()
            if (span := lane.expiries.due(now := self._host.clock.now_ms())) is not None:
                try:
                    await self._expire_span(lane, *span, now)
                except BaseException:
                    lane.expiries.add_span(now + int(self._queue.retry_seconds * 1000), *span)
                    raise
                return

    async def _expire_span(self, lane: Lane, first: int, end: int, now: int) -> None:
        await self._queue.die(lane.expired_in_stash(first, end, now), Reason.EXPIRED)
        reader = self._new_reader(lane)
        reader.seek(max(first, lane.progress.floor))
        reader.read_no_more_than((end - first) * _REFERENCE)
        left: list[tuple[int, int, int]] = []
        gone = commits = 0
        while (run := await reader.next_run(end)) is not None:
            position, reference = run
            if reference.expires_ms == NEVER or reference.expires_ms > now:
                if reference.expires_ms != NEVER:
                    _leave(left, reference.expires_ms, position, position + reference.count)
                continue
            messages = [
                message
                for message in await reader.load(position, reference)
                if message.position not in lane.leased and not lane.progress.is_settled(message.position)
            ]
            expired = [message for message in messages if lane.has_expired(message, now)]
            if len(expired) < len(messages):
                _leave(left, now + _CLAIMED_MS, messages[0].position, messages[-1].position + 1)
            await self._queue.die(expired, Reason.EXPIRED)
            gone, commits = gone + len(expired), commits + bool(expired)
            if (gone >= _AT_ONCE or commits >= _COMMITS) and reader.position < end:
                left.append((now, reader.position, end))
                break
        for span in left:
            lane.expiries.add_span(*span)


def _leave(spans: list[tuple[int, int, int]], expires_ms: int, first: int, end: int) -> None:
    """What is left of a span is short: it may be looked at as often as it has messages."""
    if spans and end - spans[-1][1] <= _SHORT:
        earliest, begin, _ = spans[-1]
        spans[-1] = min(earliest, expires_ms), begin, end
    else:
        spans.append((expires_ms, first, end))
