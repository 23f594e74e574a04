"""Expires messages at the end of their time to live, wherever in the queue they are."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from posthouse.broker.queues.definition import QueueDefinition
from posthouse.broker.queues.effects import Effects
from posthouse.broker.queues.message import Message, MessageLane, MessageSource
from posthouse.broker.queues.reading import LaneReader
from posthouse.model.clock import Clock
from posthouse.records.references import NEVER

_SHORT = 64
"""A span that was read once has at most this many positions, unless they expire together."""
_REFERENCE = 128
"""Bytes of a batch with one reference, roughly: of a short span no more is read than that."""
_AT_ONCE = 256
"""Messages that expire in one step, or somewhat more,"""
_COMMITS = 8
"""with no more commits than this."""
_CLAIMED_MS = 1000
"""How long a consumer has to take a message that it had credit for when it arrived."""


class ExpiryOwner(Protocol):
    """What expiry needs of the dispatcher."""

    @property
    def has_credit(self) -> bool:
        """Whether a consumer could take a message now."""

    def new_reader(self, lane: MessageLane) -> LaneReader: ...

    async def expired(self, messages: Sequence[Message]) -> None:
        """Dead-letter or drop messages that are not leased."""


class Expiry:
    """Of one queue."""

    def __init__(
        self,
        owner: ExpiryOwner,
        source: MessageSource,
        definition: QueueDefinition,
        effects: Effects,
        clock: Clock,
        lanes: Sequence[MessageLane],
        retry_seconds: float,
    ) -> None:
        self._owner = owner
        self._source = source
        self._definition = definition
        self._effects = effects
        self._clock = clock
        self._lanes = lanes
        self._retry_seconds = retry_seconds
        self._timer: asyncio.TimerHandle | None = None
        self._is_under_way = False
        self._is_stopped = False

    def plan(self) -> None:
        """Look at the queue when the next message may expire."""
        if self._is_under_way or self._is_stopped:
            return
        self._cancel_timer()
        times = (lane.expiries.earliest for lane in self._lanes)
        earliest = min((at for at in times if at is not None), default=None)
        if earliest is not None:
            seconds = (earliest - self._clock.now_ms()) / 1000
            if seconds <= 0:
                self._begin()
            else:
                self._timer = asyncio.get_running_loop().call_later(seconds, self._begin)

    def stop(self) -> None:
        self._is_stopped = True
        self._cancel_timer()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self) -> None:
        self._timer = None
        if not self._is_under_way and not self._is_stopped:
            self._is_under_way = True
            step = self._effects.start_step(self._step(), self._source, self._definition)
            step.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._is_under_way = False
        self.plan()

    async def expire(self) -> None:
        """Look at every span of messages that may have expired."""
        while self._is_due:
            await self._step()

    @property
    def _is_due(self) -> bool:
        now = self._clock.now_ms()
        times = (lane.expiries.earliest for lane in self._lanes)
        return any(at is not None and at <= now for at in times)

    async def _step(self) -> None:
        """Look at one span; requests wait for a step, and not for all that follow it."""
        for lane in self._lanes:
            if not self._owner.has_credit:
                lane.unclaim()
            if (span := lane.expiries.due(now := self._clock.now_ms())) is not None:
                try:
                    await self._expire_span(lane, *span, now)
                except BaseException:
                    lane.expiries.add_span(now + int(self._retry_seconds * 1000), *span)
                    raise
                return

    async def _expire_span(self, lane: MessageLane, first: int, end: int, now: int) -> None:
        reader = self._owner.new_reader(lane)
        in_stash = lane.expired_in_stash(first, end, now)
        await self._owner.expired([reader.stashed(position) for position in in_stash])
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
                if message.position not in lane.leases.holders
                and not lane.progress.is_settled(message.position)
            ]
            expired = [message for message in messages if lane.has_expired(message, now)]
            if len(expired) < len(messages):
                _leave(left, now + _CLAIMED_MS, messages[0].position, messages[-1].position + 1)
            await self._owner.expired(expired)
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
