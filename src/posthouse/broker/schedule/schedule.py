"""The schedule: stores delayed messages and fires each once, when it is due and not before.

One task does everything that takes time, step by step: read, fire, move, remove. Each step is one commit, so
that a crash or an error before or after it does no harm. Publishers only append to buckets.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Mapping, Sequence

from posthouse.broker.schedule.bucket import Bucket, prefix_in
from posthouse.broker.schedule.buckets import BucketEntry, Buckets
from posthouse.broker.schedule.emptying import Emptying
from posthouse.broker.schedule.entry import Scheduled
from posthouse.broker.schedule.firing import Fire, Firing
from posthouse.broker.schedule.keys import due_of
from posthouse.broker.schedule.loading import ScheduleLoader
from posthouse.broker.schedule.logs import OF_ALL, ScheduleLogs, prefix_of
from posthouse.broker.schedule.periods import period_for
from posthouse.broker.schedule.recalls import Recalls, place_of
from posthouse.broker.schedule.sequences import Sequences
from posthouse.broker.schedule.window import ScheduleWindow
from posthouse.model.clock import Clock
from posthouse.model.errors import Unavailable
from posthouse.model.scopes import Scope
from posthouse.model.topic_config import TopicConfig
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Operation

log = logging.getLogger(__name__)

SPARE_LOGS = 128
"""Number of logs kept free for the next periods of publishers."""
LONGEST_SLEEP = 1.0
"""In seconds. The wall clock may be set forward meanwhile."""
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
_STOPPING = "the schedule of the message stops here; try again"


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
        scope: Scope = OF_ALL,
    ) -> None:
        """At most `window` waiting messages have their keys in memory, whatever the number that waits. One
        call of `fire` gets up to `most_at_once` of them and `most_bytes_at_once` bytes, or one larger
        message. `defaults` are the settings of topics."""
        self._storage = storage
        self._clock = clock
        self._defaults = defaults or TopicConfig()
        self._window_size = window
        self._prefix = prefix_of(scope)
        self._logs = ScheduleLogs(storage, self._defaults, scope)
        self._buckets = Buckets(storage, self._logs, self._prefix)
        self._sequences = Sequences(storage, clock, self._prefix)
        self._window = ScheduleWindow(self._window_size)
        self._loading = ScheduleLoader(storage, self._buckets, self._window)
        self._emptying = Emptying(storage, self._buckets, self._logs)
        self._recalls = Recalls(storage, self._buckets, self._logs, self._prefix)
        self._firing = Firing(
            storage,
            self._buckets,
            self._window,
            self._recalls,
            fire,
            most=most_at_once,
            most_bytes=most_bytes_at_once,
        )
        self._one_at_a_time = asyncio.Lock()
        self._awake = asyncio.Event()
        self._planned: float = math.inf
        """When the task next runs by itself; an earlier due time wakes it."""
        self._looked_ms = 0
        """The time that the last step went by."""
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    def load(self, stored: Mapping[bytes, bytes]) -> None:
        """`stored` has the buckets of all schedules."""
        self._logs.load()
        own = {key: value for key, value in stored.items() if prefix_in(key) == self._prefix}
        self._buckets.load(self._recalls.load(self._sequences.load(own)))

    @property
    def waiting(self) -> int:
        """Number of messages that are not fired yet, also of those that were recalled."""
        return max(self._buckets.waiting - self._recalls.waiting, 0)

    @property
    def loaded(self) -> int:
        """Number of them that are in memory."""
        return len(self._window)

    def is_ready(self, due_ms: int) -> bool:
        """Whether a message for this time can be stored without preparation."""
        return self._logs.free >= SPARE_LOGS and self._sequences.is_ready

    async def prepare(self, due_ms: int) -> None:
        await self._logs.reserve(SPARE_LOGS)
        await self._sequences.reserve()

    def appends(self, entries: Sequence[Scheduled]) -> list[Operation]:
        """The operations that store the entries, to be committed in the same iteration of the event loop.

        Call `stored` once they are durable. After a failed commit there is nothing to do.
        """
        now = self._clock.now_ms()
        stored = (
            BucketEntry(
                period_for(entry.due_ms, now),
                entry.due_ms,
                entry.sequence or self.new_sequence(),
                entry.encode(),
            )
            for entry in entries
        )
        return self._buckets.store(stored, now)

    def new_sequence(self) -> bytes:
        """For an entry that may be recalled."""
        return self._sequences.new()

    async def recall(self, due_ms: int, sequence: bytes) -> None:
        """The entry with this sequence is not fired. Durable on return. Raises TooLate if it was fired, or is
        about to be, and Unavailable.

        That there is such an entry is not checked: it may be anywhere in the logs."""
        if self._stopping:
            raise Unavailable(_STOPPING)
        decided = self._recalls.ask(place_of(due_ms, sequence))
        self._awake.set()
        await decided

    def stored(self, entries: Sequence[Scheduled]) -> None:
        if any(entry.due_ms < self._planned for entry in entries):
            self._awake.set()

    def start(self) -> None:
        self._stopping = False
        self._task = asyncio.create_task(self._run(), name="schedule")

    async def stop(self) -> None:
        """Finish the running step, and fire no more messages."""
        self._stopping = True
        self._awake.set()
        if self._task is not None:
            await asyncio.wait([self._task])
        self._recalls.refuse(Unavailable(_STOPPING))

    async def _run(self) -> None:
        pause = FIRST_PAUSE
        while not self._stopping:
            self._awake.clear()
            self._planned = math.inf
            try:
                await self.fire_due()
            except Exception as error:
                if isinstance(error, Unavailable):
                    log.warning(
                        "schedule: delayed messages are held back, retrying in %s s: %s", pause, error
                    )
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
        """Fire all due messages, and do the preparation that is due."""
        async with self._one_at_a_time:
            while not self._stopping:
                if not await self._step():
                    return
                await asyncio.sleep(0)  # a storage in memory never yields to other tasks

    async def _step(self) -> bool:
        """Do the most urgent step. False if there is nothing to do now."""
        has_decided = await self._recalls.decide(self._clock.now_ms())
        await self._loading.catch_up()
        now = self._looked_ms = self._clock.now_ms()
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
        return has_decided

    def _lacking(self, now_ms: int) -> list[Bucket]:
        """Buckets whose time has come and that have entries outside the window."""
        return [
            bucket
            for bucket in self._buckets
            if bucket.misses_something and (bucket.is_open or bucket.period.opens_ms <= now_ms)
        ]

    def _is_over(self, bucket: Bucket, now_ms: int) -> bool:
        """Whether the bucket accepts no more entries: longer periods once they are open, the shortest ones at
        their end."""
        past = not bucket.period.is_finest or bucket.period.end_ms <= now_ms
        return past and self._emptying.is_finished(bucket)

    def _next_ms(self) -> float:
        """The time of the next step, as far as is known.

        It follows from the time that the last step went by: what has come due since then is not done.
        """
        first = self._window.first
        times: list[float] = [] if first is None else [due_of(first)]
        for bucket in self._buckets:
            if bucket.late:
                times.append(due_of(bucket.late[0]))
            look_ms = bucket.period.end_ms if bucket.is_open else bucket.period.opens_ms
            if look_ms > self._looked_ms:  # otherwise the window is full, or its first entry is not due yet
                times.append(look_ms)
        return min(times, default=math.inf)
