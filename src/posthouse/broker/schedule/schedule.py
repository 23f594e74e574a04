"""The schedule: keeps delayed messages on disk and fires each once, when it is due and not before.

One task does everything that takes time, step by step: read, fire, move, let go. What a step changes, it
changes in one commit, so that a crash or an error before or after it does no harm. Publishers only add to
buckets.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Sequence

from posthouse.broker.schedule.bucket import Bucket
from posthouse.broker.schedule.buckets import BucketEntry, Buckets
from posthouse.broker.schedule.emptying import Emptying
from posthouse.broker.schedule.entry import Scheduled
from posthouse.broker.schedule.firing import Fire, Firing
from posthouse.broker.schedule.keys import due_of
from posthouse.broker.schedule.loading import ScheduleLoader
from posthouse.broker.schedule.logs import ScheduleLogs
from posthouse.broker.schedule.periods import period_for
from posthouse.broker.schedule.window import Window
from posthouse.model.clock import Clock
from posthouse.model.errors import Unavailable
from posthouse.model.topic_config import TopicConfig
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Operation
from posthouse.storage.spaces import Space

log = logging.getLogger(__name__)

SPARE_LOGS = 128
"""So many are kept free for periods that publishers need next."""
LONGEST_SLEEP = 1.0
"""In seconds. The wall clock may be set forward meanwhile."""
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
_SEQUENCE_BITS = 16


class Schedule:
    """Owned by the event loop."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        fire: Fire,
        *,
        window: int = 50_000,
        most_at_once: int = 1000,
        most_bytes_at_once: int = 1024 * 1024,
        defaults: TopicConfig | None = None,
    ) -> None:
        """At most `window` waiting messages are known in memory by their times, whatever the number that
        waits. One call of `fire` gets `most_at_once` of them, or one that is larger than
        `most_bytes_at_once`. `defaults` are the settings of topics."""
        self._storage = storage
        self._clock = clock
        self._logs = ScheduleLogs(storage, defaults or TopicConfig())
        self._buckets = Buckets(storage, self._logs)
        self._window = Window(window)
        self._loading = ScheduleLoader(storage, self._buckets, self._window)
        self._emptying = Emptying(storage, self._buckets, self._logs)
        self._firing = Firing(
            storage, self._buckets, self._window, fire, most=most_at_once, most_bytes=most_bytes_at_once
        )
        self._last_sequence = 0
        self._one_at_a_time = asyncio.Lock()
        self._awake = asyncio.Event()
        self._planned: float = math.inf
        """When the task looks again by itself; whatever is due before that wakes it."""
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """Take over what storage kept. Once, after it was opened."""
        self._logs.load()
        self._buckets.load(self._storage.take_state(Space.SCHEDULE))

    @property
    def waiting(self) -> int:
        """How many messages are not due yet, or due and not fired yet."""
        return self._buckets.waiting

    @property
    def loaded(self) -> int:
        """How many of them are known in memory."""
        return len(self._window)

    def is_ready(self, due_ms: int) -> bool:
        """Whether a message for this time can be stored without preparation."""
        return self._logs.free >= SPARE_LOGS

    async def prepare(self, due_ms: int) -> None:
        await self._logs.reserve(SPARE_LOGS)

    def appends(self, entries: Sequence[Scheduled]) -> list[Operation]:
        """The operations that store them, to be committed in the same turn of the event loop.

        Call `stored` once they are durable. If the commit fails, there is nothing to do.
        """
        now = self._clock.now_ms()
        stored = (
            BucketEntry(period_for(entry.due_ms, now), entry.due_ms, self._sequence(now), entry.encode())
            for entry in entries
        )
        return self._buckets.store(stored, now)

    def _sequence(self, now_ms: int) -> bytes:
        """Rising, also over restarts unless the clock is set back: it decides only between equal times."""
        self._last_sequence = max(self._last_sequence + 1, now_ms << _SEQUENCE_BITS)
        return self._last_sequence.to_bytes(8, "big")

    def stored(self, entries: Sequence[Scheduled]) -> None:
        if any(entry.due_ms < self._planned for entry in entries):
            self._awake.set()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="schedule")

    async def stop(self) -> None:
        """Finish the step that has begun. The schedule cannot be used any more."""
        self._stopping = True
        self._awake.set()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        pause = FIRST_PAUSE
        while not self._stopping:
            self._awake.clear()
            self._planned = math.inf
            try:
                await self.fire_due()
            except Exception as error:
                if isinstance(error, Unavailable):
                    log.warning("schedule: delayed messages wait, retrying in %s s: %s", pause, error)
                else:
                    log.exception("schedule: delayed messages could not be sent, retrying in %s s", pause)
                self._planned = -math.inf
                await self._sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                pause = FIRST_PAUSE
                await self._sleep_until_needed()

    async def _sleep_until_needed(self) -> None:
        self._planned = self._next_ms()
        seconds = (self._planned - self._clock.now_ms()) / 1000
        await self._sleep(None if math.isinf(seconds) else min(max(seconds, 0.001), LONGEST_SLEEP))

    async def _sleep(self, seconds: float | None) -> None:
        if self._stopping:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._awake.wait(), seconds)

    async def fire_due(self) -> None:
        """Fire everything that is due, and do what has to be done ahead of time."""
        async with self._one_at_a_time:
            while not self._stopping:
                if not await self._step():
                    return
                await asyncio.sleep(0)  # a storage in memory lets nobody else have a turn

    async def _step(self) -> bool:
        """Whatever comes first. False if there is nothing to do now."""
        await self._loading.catch_up()
        now = self._clock.now_ms()
        if await self._firing.fire_some(now):
            return True
        finished = [bucket for bucket in self._buckets if self._is_over(bucket, now)]
        if finished:
            await self._emptying.remove(finished)
            return True
        for bucket in sorted(self._lacking(now), key=lambda bucket: (bucket.bound, -bucket.period.bits)):
            if not self._loading.can_load(bucket):
                await self._emptying.move_some(bucket, now)
                return True
            if self._loading.is_needed(bucket) or self._loading.fits(bucket):
                await self._loading.load(bucket)
                return True
        return False

    def _lacking(self, now_ms: int) -> list[Bucket]:
        """Those whose time comes, and that have something that is not in the window."""
        return [
            bucket
            for bucket in self._buckets
            if bucket.misses_something and (bucket.is_open or bucket.period.opens_ms <= now_ms)
        ]

    def _is_over(self, bucket: Bucket, now_ms: int) -> bool:
        """Longer periods take nothing more once they are open, the shortest ones do until they end."""
        past = not bucket.period.is_finest or bucket.period.end_ms <= now_ms
        return past and self._emptying.is_finished(bucket)

    def _next_ms(self) -> float:
        """When there is next something to do, as far as is known."""
        now = self._clock.now_ms()
        first = self._window.first
        times: list[float] = [] if first is None else [due_of(first)]
        for bucket in self._buckets:
            if bucket.late:
                times.append(due_of(bucket.late[0]))
            look_ms = bucket.period.end_ms if bucket.is_open else bucket.period.opens_ms
            if look_ms > now:  # else there is no room for it, or something in it waits for its time
                times.append(look_ms)
        return min(times, default=math.inf)
