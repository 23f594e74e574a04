"""The broker: the one door through which every protocol reaches topics and their logs.

It knows no protocol. Every produce ends in `append`, every consume starts in `read`.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from posthouse.broker.housekeeping import Housekeeping
from posthouse.broker.long_poll import LongPoll
from posthouse.broker.topics import NewTopic, Topics
from posthouse.model.clock import Clock
from posthouse.model.errors import OffsetOutOfRange, PosthouseError, UnknownPartition
from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.topic_config import TimestampType
from posthouse.model.topics import Topic
from posthouse.records.batch import check_timestamps, stamp_log_append_time, validate_produced
from posthouse.settings import Settings
from posthouse.storage.interface import Append, Bounds, Outcome, Slice, Storage, TimestampedOffset, Trim

LEADER_EPOCH = 0
"""There is one writer of a partition for all its life, so its epoch never changes."""


@dataclass(slots=True)
class Appended:
    """Where a batch went. `append_time` is -1 where the records keep their producer's timestamps."""

    base_offset: int
    log_start: int
    append_time: int


@dataclass(slots=True)
class Produced:
    """One batch on its way in. The bytes must be writable: offsets are stamped in place."""

    topic: Topic
    partition: int
    batch: memoryview


class Broker:
    def __init__(self, storage: Storage, settings: Settings, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock
        self.settings = settings
        self.topics = Topics(storage, settings.topic_defaults(), settings.default_partitions)
        self._long_poll = LongPoll()
        self._housekeeping = Housekeeping(storage, settings.retention_check_seconds)

    async def start(self) -> None:
        await self._storage.open()
        self.topics.load()
        self._housekeeping.start()

    async def stop(self) -> None:
        await self._housekeeping.stop()
        self._long_poll.wake_all()
        await self._storage.close()

    @property
    def cluster_id(self) -> str:
        return self._storage.cluster_id

    def append(self, batches: Sequence[Produced]) -> asyncio.Future[list[Appended | PosthouseError]]:
        """Append each batch to its partition; all that are valid become durable together.

        The order of calls is the order of offsets. The result has one entry per batch: where it went,
        or why it was refused. The future itself never fails with a domain error.
        """
        results: list[Appended | PosthouseError] = []
        operations: list[Append] = []
        accepted: list[int] = []
        for index, produced in enumerate(batches):
            try:
                operation, append_time = self._checked(produced)
            except PosthouseError as error:
                results.append(error)
                continue
            operations.append(operation)
            accepted.append(index)
            results.append(Appended(-1, -1, append_time))
        done: asyncio.Future[list[Appended | PosthouseError]] = asyncio.get_running_loop().create_future()
        if not operations:
            done.set_result(results)
            return done
        try:
            committed = self._storage.commit(operations)
        except PosthouseError as error:
            _refuse(results, accepted, error)
            done.set_result(results)
            return done

        def finish(committed: asyncio.Future[list[Outcome]]) -> None:
            error = committed.exception()
            if error is None:
                for index, operation, outcome in zip(accepted, operations, committed.result(), strict=True):
                    appended = results[index]
                    assert isinstance(appended, Appended)
                    appended.base_offset = outcome.base_offset
                    appended.log_start = outcome.log_start
                    self._long_poll.arrived(operation.partition, operation.header.length)
            elif isinstance(error, PosthouseError):
                _refuse(results, accepted, error)
            if done.cancelled():
                return
            if error is None or isinstance(error, PosthouseError):
                done.set_result(results)
            else:
                done.set_exception(error)

        committed.add_done_callback(finish)
        return done

    def _checked(self, produced: Produced) -> tuple[Append, int]:
        topic = produced.topic
        config = topic.config
        header = validate_produced(produced.batch, max_bytes=config.max_message_bytes)
        now = self._clock.now_ms()
        append_time = -1
        if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
            stamp_log_append_time(produced.batch, now)
            header = header._replace(max_timestamp=now)
            append_time = now
        else:
            check_timestamps(
                header,
                now_ms=now,
                before_max_ms=config.message_timestamp_before_max_ms,
                after_max_ms=config.message_timestamp_after_max_ms,
            )
        return Append(self._partition(topic, produced.partition), produced.batch, header), append_time

    async def read(
        self, topic: Topic, partition: int, offset: int, max_bytes: int, *, at_least_one: bool = True
    ) -> Slice:
        """Whole batches from the one that holds `offset`; empty at the end. See `Storage.read`."""
        return await self._storage.read(
            self._partition(topic, partition), offset, max_bytes, at_least_one=at_least_one
        )

    async def wait_for_records(
        self, partitions: Iterable[tuple[PartitionId, int]], missing: int, seconds: float
    ) -> None:
        """Sleep until `missing` bytes arrived, at the latest after `seconds`.

        `partitions` come with the end that the caller saw; if one has moved since, this returns at once.
        """
        watched = []
        for partition, seen_end in partitions:
            if self._storage.bounds(partition).end != seen_end:
                return
            watched.append(partition)
        await self._long_poll.wait(watched, missing, seconds)

    def wake_readers(self) -> None:
        """Whoever waits for records is let go with what there is."""
        self._long_poll.wake_all()

    def bounds(self, topic: Topic, partition: int) -> Bounds:
        return self._storage.bounds(self._partition(topic, partition))

    def size(self, topic: Topic, partition: int) -> int:
        return self._storage.size(self._partition(topic, partition))

    async def find_timestamp(self, topic: Topic, partition: int, timestamp: int) -> TimestampedOffset | None:
        return await self._storage.find_timestamp(self._partition(topic, partition), timestamp)

    async def find_max_timestamp(self, topic: Topic, partition: int) -> TimestampedOffset | None:
        return await self._storage.find_max_timestamp(self._partition(topic, partition))

    async def delete_records(self, topic: Topic, partition: int, before: int | None) -> int:
        """Forget everything below `before` (None: everything); the new log start is returned."""
        partition_id = self._partition(topic, partition)
        bounds = self._storage.bounds(partition_id)
        offset = bounds.end if before is None else before
        if not 0 <= offset <= bounds.end:
            raise OffsetOutOfRange(f"offset {offset} is not between 0 and the end of the log at {bounds.end}")
        [outcome] = await self._storage.commit([Trim(partition_id, offset)])
        return outcome.log_start

    async def create_topics(
        self, wanted: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[Topic | PosthouseError]:
        return await self.topics.create(wanted, validate_only=validate_only)

    async def delete_topics(self, topics: Sequence[Topic]) -> None:
        await self.topics.delete(topics)
        for topic in topics:
            for partition in topic.partition_ids():
                self._long_poll.wake(partition)

    async def create_partitions(self, name: str, partitions: int, *, validate_only: bool = False) -> Topic:
        return await self.topics.grow(name, partitions, validate_only=validate_only)

    async def configure_topic(
        self, name: str, change: Callable[[Topic], Mapping[str, str]], *, validate_only: bool = False
    ) -> Topic:
        """`change` gets the topic as it is and returns all the settings that it is to have of its own."""
        return await self.topics.configure(name, change, validate_only=validate_only)

    def topic(self, name: str) -> Topic:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: TopicId) -> Topic:
        return self.topics.get_by_id(topic_id)

    def _partition(self, topic: Topic, partition: int) -> PartitionId:
        if not 0 <= partition < topic.partitions:
            raise UnknownPartition(f"topic {topic.name!r} has no partition {partition}")
        return PartitionId(topic.id, partition)


def _refuse(results: list[Appended | PosthouseError], accepted: list[int], error: PosthouseError) -> None:
    for index in accepted:
        results[index] = error
