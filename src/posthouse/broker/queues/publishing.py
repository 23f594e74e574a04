"""Collects the publishes of one turn of the event loop in a wave, and writes waves in order."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence

from posthouse.broker.appending import Produced
from posthouse.broker.queues.backing_topics import BackingTopic
from posthouse.broker.queues.wave import WAVE_BYTES, Wave
from posthouse.broker.schedule.entry import Scheduled
from posthouse.broker.schedule.schedule import Schedule
from posthouse.broker.topics import NewTopic
from posthouse.model.clock import Clock
from posthouse.model.errors import PosthouseError, TopicExists
from posthouse.model.topics import Topic
from posthouse.storage.operations import Operation
from posthouse.storage.outcomes import Outcome

log = logging.getLogger(__name__)

AppendAll = Callable[[Sequence[Produced], Sequence[Operation]], asyncio.Future[list[Outcome]]]
CreateTopics = Callable[[Sequence[NewTopic]], Awaitable[list[Topic | PosthouseError]]]


class Publishing:
    """Owned by the event loop. Waves are written in the order in which they began.

    A wave that needs a new topic waits until it is created, and later waves wait behind it.
    """

    def __init__(
        self,
        topics: Mapping[str, Topic],
        clock: Clock,
        append_all: AppendAll,
        create_topics: CreateTopics,
        schedule: Schedule,
        is_behind: Callable[[], bool],
    ) -> None:
        """`topics` are those of the broker by name, as they are at any time."""
        self._topics = topics
        self.now_ms = clock.now_ms
        self.append = append_all
        self._create_topics = create_topics
        self._schedule = schedule
        self.is_behind = is_behind
        """Back-pressure: whether publishers should pause because too much waits for the disk."""
        self._current: Wave | None = None
        self._line: deque[Wave] = deque()
        self._preparing: asyncio.Task[None] | None = None

    @property
    def wave(self) -> Wave:
        """The wave that publishes join now. It is written at the end of this turn of the event loop."""
        wave = self._current
        if wave is None:
            wave = self._current = Wave(self)
            asyncio.get_running_loop().call_soon(self._finish, wave)
        elif wave.size > WAVE_BYTES:
            self._finish(wave)
            return self.wave
        return wave

    def transaction(self) -> Wave:
        """A wave of its own: see `Wave.commit`."""
        return Wave(self)

    def _finish(self, wave: Wave) -> None:
        if self._current is wave:
            self._current = None
            self.submit(wave)

    def submit(self, wave: Wave) -> None:
        if self._current is not None and wave is not self._current:
            self._finish(self._current)  # earlier publishes are written first
        self._line.append(wave)
        self._advance()

    def _advance(self) -> None:
        while self._line and self._preparing is None:
            wave = self._line[0]
            missing = wave.missing_topics()
            if missing or not all(self._schedule.is_ready(entry.due_ms) for entry in wave.scheduled):
                self._preparing = asyncio.create_task(self._prepare(wave, missing))
                self._preparing.add_done_callback(self._prepared)
                return
            self._line.popleft()
            wave.write()

    async def _prepare(self, wave: Wave, missing: list[BackingTopic]) -> None:
        if missing:
            for created in await self._create_topics([backing.new for backing in missing]):
                if isinstance(created, PosthouseError) and not isinstance(created, TopicExists):
                    raise created
        for entry in wave.scheduled:
            await self._schedule.prepare(entry.due_ms)

    def _prepared(self, task: asyncio.Task[None]) -> None:
        self._preparing = None
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, PosthouseError):
            self._line.popleft().fail(error)
        elif error is not None:
            wave = self._line.popleft()
            names = ", ".join(backing.name for backing in wave.missing_topics()) or "of the schedule"
            log.error("topics %s: could not be created", names, exc_info=error)
            wave.fail(PosthouseError("topics could not be created"))
        self._advance()

    async def close(self) -> None:
        """Write the publishes that wait."""
        if self._current is not None:
            self._finish(self._current)
        while self._preparing is not None:
            await asyncio.wait([self._preparing])
            await asyncio.sleep(0)

    def topic(self, backing: BackingTopic) -> Topic | None:
        """The topic as it is now: it may have been changed or deleted since the last wave."""
        backing.topic = topic = self._topics.get(backing.name)
        return topic

    def schedule_appends(self, entries: Sequence[Scheduled]) -> list[Operation]:
        return list(self._schedule.appends(entries))

    def scheduled(self, entries: Sequence[Scheduled]) -> None:
        self._schedule.stored(entries)
