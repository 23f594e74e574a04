"""A wave: messages and settlements that become durable in one commit.

All publishes of one turn of the event loop join one wave, of all clients: one batch for each partition, one
run of references for each queue, one commit. A transaction is a wave of its own.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from posthouse.broker.appending import Produced
from posthouse.broker.queues.backing_topics import BackingTopic
from posthouse.broker.queues.envelope import Envelope
from posthouse.broker.queues.message import Message, MessageLane, MessageSource
from posthouse.broker.queues.room import Room
from posthouse.broker.schedule.entry import Scheduled
from posthouse.model.errors import PosthouseError
from posthouse.model.topics import Topic
from posthouse.records.builder import BatchBuilder
from posthouse.records.partitioner import partition_of
from posthouse.records.references import NEVER
from posthouse.storage.operations import Operation, Put, Refer, Run
from posthouse.storage.outcomes import Outcome

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


class Writer(Protocol):
    """What a wave needs of `Publishing`."""

    def topic(self, backing: BackingTopic) -> Topic | None: ...

    def now_ms(self) -> int: ...

    def append(
        self, batches: Sequence[Produced], together: Sequence[Operation]
    ) -> asyncio.Future[list[Outcome]]:
        """Commit all of it together, or fail."""

    def schedule_appends(self, entries: Sequence[Scheduled]) -> list[Operation]: ...

    def scheduled(self, entries: Sequence[Scheduled]) -> None: ...

    def submit(self, wave: "Wave") -> None: ...


class Packing:
    """One batch for one partition, and the runs that refer to its records."""

    __slots__ = ("_limit", "_runs", "builder", "partition", "topic")

    def __init__(self, topic: Topic, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.builder = BatchBuilder()
        self._limit = topic.config.max_message_bytes
        self._runs: list[Run] = []

    def has_room(self, size: int) -> bool:
        """Always for the first message: one that is too large alone is refused with its batch."""
        builder = self.builder
        return not builder.count or builder.size_estimate + size + _RECORD_OVERHEAD <= self._limit

    def new_run(self, expires_ms: int = NEVER) -> Run:
        """Begin a run with the next message that is added; the caller counts the messages."""
        run = Run(self.topic.partition(self.partition), self.builder.count, 0, 0, expires_ms)
        self._runs.append(run)
        return run

    def produced(self) -> Produced:
        return Produced(self.topic, self.partition, memoryview(self.builder.build()), self._runs)


class Wave:
    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._entries: list[tuple[BackingTopic, tuple[Destination, ...], bytes, bytes, Envelope]] = []
        self._settled: list[Message] = []
        self._puts: list[Put] = []
        self.scheduled: list[Scheduled] = []
        self.size = 0
        self._callbacks: list[OnEnd] = []
        self._lanes: dict[MessageLane, list[Run]] = {}
        self._taken_back: list[Message] = []
        """Messages settled in memory, which are unsettled if the wave fails."""
        self._expected: dict[Room, tuple[int, int]] = {}

    def add(
        self,
        backing: BackingTopic,
        queues: tuple[Destination, ...],
        key: bytes,
        value: bytes,
        envelope: Envelope,
    ) -> None:
        self._entries.append((backing, queues, key, value, envelope))
        self.size += len(value)

    def schedule(self, entry: Scheduled) -> None:
        self.scheduled.append(entry)
        self.size += len(entry.value)

    def put(self, put: Put) -> None:
        self._puts.append(put)

    def settle(self, messages: Sequence[Message]) -> None:
        """Settle messages with the commit. They stay leased until the wave is written."""
        self._settled += messages

    def expect(self, room: Room, size: int) -> None:
        """Reserve room for one message in a queue with a limit."""
        room.expect(1, size)
        count, total = self._expected.get(room, (0, 0))
        self._expected[room] = count + 1, total + size

    def on_end(self, callback: OnEnd) -> None:
        self._callbacks.append(callback)

    def commit(self) -> asyncio.Future[None]:
        """For transactions: write the wave. The future is done when it is durable."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def ended(error: PosthouseError | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        self.on_end(ended)
        self._writer.submit(self)
        return done

    def abandon(self) -> None:
        """Roll back a transaction that was not committed."""
        self._expect_no_more()

    def _expect_no_more(self) -> None:
        expected, self._expected = self._expected, {}
        for room, (count, size) in expected.items():
            room.expect(-count, -size)

    def missing_topics(self) -> list[BackingTopic]:
        """Topics that must be created before the wave can be written."""
        missing: dict[str, BackingTopic] = {}
        last: BackingTopic | None = None
        for entry in self._entries:
            backing = entry[0]
            if backing is not last:
                last = backing
                if self._writer.topic(backing) is None:
                    missing[backing.name] = backing
        return list(missing.values())

    def write(self) -> None:
        try:
            produced = self._packed()
            self._lanes = {lane: runs for lane, runs in self._lanes.items() if not lane.is_gone}
            operations: list[Operation] = [Refer(lane.log, runs) for lane, runs in self._lanes.items()]
            operations += self._writer.schedule_appends(self.scheduled) if self.scheduled else []
            operations += self._settlements()
            operations += self._puts
            if not produced and not operations:
                self._settled_for_good()
                self._end(None)
                return
            self._writer.append(produced, operations).add_done_callback(self._written)
        except PosthouseError as error:
            self.fail(error)

    def _packed(self) -> list[Produced]:
        """One batch per partition, and the runs that refer to its records.

        Consecutive messages for the same queues share a run: with one queue or a hundred, a message costs one
        addition.
        """
        now = self._writer.now_ms()
        packings: dict[tuple[BackingTopic, int], Packing] = {}
        finished: list[Packing] = []
        last_backing = last_queues = last_expires_in = None
        last_priority = 0
        packing: Packing | None = None
        runs: list[Run] = []
        topic: Topic | None = None
        for backing, queues, key, value, envelope in self._entries:
            if backing is not last_backing or topic is None or topic.partitions > 1 or packing is None:
                topic = backing.topic
                assert topic is not None, "missing topics were made before"
                last_backing = backing
                # The partition that producers of the topic choose for the key, too.
                place = backing, 0 if topic.partitions == 1 else partition_of(key, topic.partitions)
                following = packings.get(place)
                if following is None:
                    following = packings[place] = Packing(topic, place[1])
                if following is not packing:
                    packing, last_queues = following, None
            if not packing.has_room(len(value) + len(envelope.headers) + len(key)):
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

    def _settlements(self) -> list[Put]:
        lanes: dict[MessageLane, None] = {}
        for message in self._settled:
            if message.lane.leases.settle(message.position, message):
                self._taken_back.append(message)
                lanes[message.lane] = None
        return [put for lane in lanes for put in lane.progress.puts()]

    def _written(self, future: asyncio.Future[list[Outcome]]) -> None:
        error = future.exception()
        if error is None:
            for lane, runs in self._lanes.items():
                lane.arrived(runs)
            if self.scheduled:
                self._writer.scheduled(self.scheduled)
            self._settled_for_good()
            self._end(None)
        elif isinstance(error, PosthouseError):
            self.fail(error)
        else:
            raise error

    def _settled_for_good(self) -> None:
        settled: dict[MessageSource, list[Message]] = {}
        for message in self._taken_back:
            settled.setdefault(message.queue, []).append(message)
        for queue, messages in settled.items():
            queue.settled(messages)

    def fail(self, error: PosthouseError) -> None:
        """The wave could not be written: take everything back."""
        for message in self._taken_back:
            message.lane.unsettle(message)
        self._end(error)

    def _end(self, error: PosthouseError | None) -> None:
        self._expect_no_more()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(error)
