"""Publishing: messages become durable in waves.

All publishes of one turn of the event loop join one wave, of all clients: one batch for each partition, one
run of references for each queue, one commit. Waves are written in the order in which they began.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from posthouse.broker.appending import Produced
from posthouse.broker.queues.backing_topics import BackingTopic
from posthouse.broker.queues.envelope import Envelope
from posthouse.broker.queues.message import MessageLane
from posthouse.broker.queues.room import Room
from posthouse.broker.schedule.entry import Scheduled
from posthouse.broker.schedule.schedules import Schedules
from posthouse.broker.topics import NewTopic
from posthouse.model.clock import Clock
from posthouse.model.errors import PosthouseError, TopicExists
from posthouse.model.topics import Topic
from posthouse.records.builder import BatchBuilder
from posthouse.records.partitioner import partition_of
from posthouse.records.references import NEVER
from posthouse.storage.operations import Operation, Refer, Run
from posthouse.storage.outcomes import Outcome

log = logging.getLogger(__name__)

AppendAll = Callable[[Sequence[Produced], Sequence[Operation]], asyncio.Future[list[Outcome]]]
CreateTopics = Callable[[Sequence[NewTopic]], Awaitable[list[Topic | PosthouseError]]]
OnEnd = Callable[[PosthouseError | None], None]

WAVE_BYTES = 1024 * 1024
"""A larger wave is written at once; later publishes join the next one."""
_RECORD_OVERHEAD = 32
"""More than the lengths and deltas of one record take."""


class Destination(Protocol):
    """A queue that messages are routed to."""

    def lane_for(self, priority: int) -> MessageLane: ...

    def time_of(self, now_ms: int, expires_in_ms: int | None) -> int:
        """The time in the reference to a message that is published now."""


# A tuple and no class: there is one for every message that is published.
Published: TypeAlias = tuple[BackingTopic, tuple[Destination, ...], bytes | None, bytes, Envelope]
"""Topic, queues, key, value and envelope of one message."""


@dataclass(slots=True)
class PublishedRun(Run):
    """A run whose messages are still in memory."""

    topic: str = ""
    published: Sequence[Published] = ()
    """Those of the whole batch."""


class Packing:
    """One batch for one partition, and the runs that refer to its records."""

    __slots__ = ("_limit", "_runs", "builder", "partition", "published", "topic")

    def __init__(self, topic: Topic, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.builder = BatchBuilder()
        self.published: list[Published] = []
        self._limit = topic.config.max_message_bytes
        self._runs: list[Run] = []

    def has_room(self, size: int) -> bool:
        """Always for the first message: one that is too large alone is refused with its batch."""
        builder = self.builder
        return not builder.count or builder.size_estimate + size + _RECORD_OVERHEAD <= self._limit

    def new_run(self, expires_ms: int = NEVER) -> Run:
        """Begin a run with the next message that is added; the caller counts the messages."""
        partition, first = self.topic.partition(self.partition), self.builder.count
        run = PublishedRun(
            partition, first, 0, 0, expires_ms, topic=self.topic.name, published=self.published
        )
        self._runs.append(run)
        return run

    def produced(self) -> Produced:
        return Produced(self.topic, self.partition, memoryview(self.builder.build()), self._runs)


class Wave:
    """Messages that become durable in one commit."""

    def __init__(self, publishing: "Publishing") -> None:
        self._publishing = publishing
        self._published: list[Published] = []
        self.scheduled: list[Scheduled] = []
        self.size = 0
        self._callbacks: list[OnEnd] = []
        self._lanes: dict[MessageLane, list[Run]] = {}
        self._expected: dict[Room, tuple[int, int]] = {}

    def add(
        self,
        backing: BackingTopic,
        queues: tuple[Destination, ...],
        key: bytes | None,
        value: bytes,
        envelope: Envelope,
    ) -> None:
        self._published.append((backing, queues, key, value, envelope))
        self.size += len(value)

    def schedule(self, entry: Scheduled) -> None:
        self.scheduled.append(entry)
        self.size += len(entry.value)

    def expect(self, room: Room, size: int) -> None:
        """Reserve room for one message in a queue with a limit."""
        room.expect(1, size)
        count, total = self._expected.get(room, (0, 0))
        self._expected[room] = count + 1, total + size

    def on_end(self, callback: OnEnd) -> None:
        self._callbacks.append(callback)

    def _expect_no_more(self) -> None:
        expected, self._expected = self._expected, {}
        for room, (count, size) in expected.items():
            room.expect(-count, -size)

    def missing_topics(self) -> list[BackingTopic]:
        """Topics that must be created before the wave can be written."""
        missing: dict[str, BackingTopic] = {}
        last: BackingTopic | None = None
        for entry in self._published:
            backing = entry[0]
            if backing is not last:
                last = backing
                if self._publishing.topic(backing) is None:
                    missing[backing.name] = backing
        return list(missing.values())

    def write(self) -> None:
        try:
            produced = self._packed()
            self._lanes = {lane: runs for lane, runs in self._lanes.items() if not lane.is_gone}
            operations: list[Operation] = [Refer(lane.log, runs) for lane, runs in self._lanes.items()]
            if self.scheduled:
                operations += self._publishing.schedules.appends(self.scheduled)
            operations += self._operations()
            if produced or operations:
                self._publishing.append(produced, operations).add_done_callback(self._written)
            else:
                self.end(None)
        except PosthouseError as error:
            self.end(error)

    def _operations(self) -> Sequence[Operation]:
        """What becomes durable with the messages."""
        return ()

    def _packed(self) -> list[Produced]:
        """One batch per partition, and the runs that refer to its records.

        Consecutive messages for the same queues share a run: with one queue or a hundred, a message costs one
        addition.
        """
        now = self._publishing.now_ms()
        packings: dict[tuple[BackingTopic, int], Packing] = {}
        finished: list[Packing] = []
        last_backing = last_queues = last_expires_in = None
        last_priority = 0
        packing: Packing | None = None
        runs: list[Run] = []
        topic: Topic | None = None
        for published in self._published:
            backing, queues, key, value, envelope = published
            if backing is not last_backing or topic is None or topic.partitions > 1 or packing is None:
                topic = backing.topic
                assert topic is not None, "missing topics were made before"
                last_backing = backing
                place = backing, _partition(backing, topic, key)
                following = packings.get(place)
                if following is None:
                    following = packings[place] = Packing(topic, place[1])
                if following is not packing:
                    packing, last_queues = following, None
            if not packing.has_room(len(value) + len(envelope.headers) + len(key or b"")):
                finished.append(packing)
                packing = packings[backing, packing.partition] = Packing(packing.topic, packing.partition)
                last_queues = None
            if (
                queues is not last_queues
                or envelope.expires_in_ms != last_expires_in
                or envelope.priority != last_priority
            ):
                last_queues, last_expires_in, last_priority = (
                    queues,
                    envelope.expires_in_ms,
                    envelope.priority,
                )
                runs = self._new_runs(packing, queues, last_expires_in, last_priority, now)
            packing.builder.add_raw(key, value, envelope.headers, now)
            packing.published.append(published)
            for run in runs:
                run.count += 1
                run.size += len(value)
        finished += packings.values()
        return [packing.produced() for packing in finished]

    def _new_runs(
        self,
        packing: Packing,
        queues: tuple[Destination, ...],
        expires_in: int | None,
        priority: int,
        now: int,
    ) -> list[Run]:
        """One run for all queues in which the messages expire at the same time, and one for all streams."""
        runs: dict[int, Run] = {}
        for queue in queues:
            expires_ms = queue.time_of(now, expires_in)
            run = runs.get(expires_ms)
            if run is None:
                run = runs[expires_ms] = packing.new_run(expires_ms)
            lane = queue.lane_for(priority)
            of_lane = self._lanes.get(lane)
            if of_lane is None:
                self._lanes[lane] = [run]
            else:
                of_lane.append(run)
        return list(runs.values())

    def _written(self, future: asyncio.Future[list[Outcome]]) -> None:
        error = future.exception()
        if error is None:
            for lane, runs in self._lanes.items():
                lane.arrived(runs)
            if self.scheduled:
                self._publishing.schedules.stored(self.scheduled)
            self.end(None)
        elif isinstance(error, PosthouseError):
            self.end(error)
        else:
            raise error

    def end(self, error: PosthouseError | None) -> None:
        """The wave is durable, or failed with `error`."""
        self._expect_no_more()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(error)


def _partition(backing: BackingTopic, topic: Topic, key: bytes | None) -> int:
    """That which producers of the topic choose for the key, too, unless all messages are for one."""
    if backing.partition is not None:
        return backing.partition % topic.partitions
    return 0 if topic.partitions == 1 else partition_of(key or b"", topic.partitions)


class Publishing:
    """Owned by the event loop. A wave that needs a new topic waits until it is created, and later waves wait
    behind it."""

    def __init__(
        self,
        topics: Mapping[str, Topic],
        clock: Clock,
        append_all: AppendAll,
        create_topics: CreateTopics,
        schedules: Schedules,
        is_behind: Callable[[], bool],
    ) -> None:
        """`topics` are those of the broker by name, as they are at any time."""
        self._topics = topics
        self.now_ms = clock.now_ms
        self.append = append_all
        self._create_topics = create_topics
        self.schedules = schedules
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
            if missing or (wave.scheduled and not self.schedules.is_ready(wave.scheduled)):
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
        await self.schedules.prepare(wave.scheduled)

    def _prepared(self, task: asyncio.Task[None]) -> None:
        self._preparing = None
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, PosthouseError):
            self._line.popleft().end(error)
        elif error is not None:
            wave = self._line.popleft()
            names = ", ".join(backing.name for backing in wave.missing_topics()) or "of the schedule"
            log.error("topics %s: could not be created", names, exc_info=error)
            wave.end(PosthouseError("topics could not be created"))
        self._advance()

    async def written(self) -> None:
        """Return when the publishes that wait are handed to storage."""
        if self._current is not None:
            self._finish(self._current)
        while self._preparing is not None:
            await asyncio.wait([self._preparing])
            await asyncio.sleep(0)

    def topic(self, backing: BackingTopic) -> Topic | None:
        """The topic as it is now: it may have been changed or deleted since the last wave."""
        backing.topic = topic = self._topics.get(backing.name)
        return topic
