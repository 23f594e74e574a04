"""Storage in memory: the same contract without durability. For tests and throw-away brokers."""

import asyncio
import base64
import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from posthouse.model.clock import Clock
from posthouse.model.errors import (
    CorruptBatch,
    OffsetOutOfRange,
    OutOfOrderSequence,
    PosthouseError,
    ProducerFenced,
    RecordTooLarge,
    StorageClosed,
    UnknownPartition,
)
from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.topic_config import TopicConfig
from posthouse.model.topics import Topic
from posthouse.records.batch import LEADER_EPOCH, Readable, stamp
from posthouse.records.control import is_commit
from posthouse.records.record import Record, iter_records
from posthouse.storage.arrivals import Arrived, Awaited, nothing_awaited
from posthouse.storage.bounds import Bounds, Slice, TimestampedOffset
from posthouse.storage.condition import StorageCondition
from posthouse.storage.definition_changes import DefinitionsChanged
from posthouse.storage.memory.compaction import CompactionProgress, StoredBatch, compact
from posthouse.storage.metrics import StorageMetrics
from posthouse.storage.operations import Append, Operation, Put, Refer, Trim
from posthouse.storage.outcomes import PUT_DONE, OperationRefused, Outcome
from posthouse.storage.producers import AbortedTransaction, Producer, ProducerTable
from posthouse.storage.retention import (
    KeptElsewhere,
    Needed,
    checked_archived,
    nothing_elsewhere,
    nothing_needed,
)
from posthouse.storage.spaces import Space
from posthouse.storage.stored_state import StoredState


class _Log:
    """The batches of one partition; `bases` mirrors their base offsets for bisection."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self.size = 0
        self.bases: list[int] = []
        self.batches: list[StoredBatch] = []
        self.producers = ProducerTable()
        self._compacted = CompactionProgress()

    @property
    def bounds(self) -> Bounds:
        first_open = self.producers.first_open()
        return Bounds(self.start, self.end, self.end if first_open is None else first_open)

    def append(self, append: Append, now_ms: int) -> int:
        base = self.end
        header = append.header
        if header.producer_id >= 0:
            repeated = self.producers.repeated(header)
            if repeated is not None:
                return repeated
            after = self.producers.place(header, base, now_ms)
            aborts = header.is_control and not is_commit(append.batch)
            self.producers.written(header.producer_id, after, base, aborts=aborts)
        stamp(append.batch, base, LEADER_EPOCH)
        append.base_offset = base
        header = header._replace(base_offset=base)
        self.bases.append(base)
        self.batches.append(StoredBatch(bytes(append.batch), header, now_ms))
        self.end = base + header.last_offset_delta + 1
        self.size += header.length
        return base

    def trim(self, offset: int) -> None:
        self.start = max(self.start, min(offset, self.end))
        keep = next(
            (index for index, batch in enumerate(self.batches) if batch.header.last_offset >= self.start),
            len(self.batches),
        )
        self.size -= sum(batch.header.length for batch in self.batches[:keep])
        del self.bases[:keep], self.batches[:keep]
        self.producers.trim(self.start)

    def compact(self, config: TopicConfig, now_ms: int, needed: int | None) -> None:
        bounds = self.bounds
        if needed is not None:
            bounds = replace(bounds, stable=min(bounds.stable, needed))
        self._compacted = compact(self.batches, bounds, self.producers, config, self._compacted, now_ms)
        self.bases = [batch.header.base_offset for batch in self.batches]
        self.size = sum(batch.header.length for batch in self.batches)

    def whole_batches_before(self, offset: int) -> int:
        """The highest start that removes whole batches only and nothing from `offset` on."""
        ends = (batch.header.next_offset for batch in self.batches)
        return max((end for end in ends if end <= offset), default=self.start)

    def between(self, offset: int, end: int) -> Iterator[StoredBatch]:
        """The batches from the one that holds `offset` to the last one that begins before `end`."""
        for index in range(max(bisect_right(self.bases, offset) - 1, 0), len(self.batches)):
            if self.bases[index] >= end:
                return
            yield self.batches[index]


class MemoryStorage:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.metrics = StorageMetrics()
        self._topics: dict[TopicId, Topic] = {}
        self._logs: dict[PartitionId, _Log] = {}
        self._state: dict[int, dict[bytes, bytes]] = {}
        self._stored_state = StoredState()
        self._subscribers: list[Arrived] = []
        self._closed = False
        self._cluster_id = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")

    async def open(self) -> None:
        """Open the storage. After `close` it can be opened again and still has its data."""
        self._closed = False
        self._stored_state = StoredState({space: dict(values) for space, values in self._state.items()})

    async def close(self) -> None:
        self._closed = True

    @property
    def cluster_id(self) -> str:
        return self._cluster_id

    @property
    def is_shared(self) -> bool:
        return False

    @property
    def has_lost_commits(self) -> bool:
        return False

    async def forget_lost_commits(self) -> None:
        """No-op: memory never loses single commits."""

    async def admit_members(self) -> None:
        """No-op: there are no other brokers."""

    @property
    def topics(self) -> Mapping[TopicId, Topic]:
        return self._topics

    async def condition(self) -> StorageCondition:
        return StorageCondition(refusal="the storage is closed" if self._closed else None)

    @property
    def unwritten_bytes(self) -> int:
        return 0

    @property
    def is_behind(self) -> bool:
        return False

    async def create_topics(self, topics: Sequence[Topic], state: Sequence[Put] = ()) -> None:
        self._check_open()
        for topic in topics:
            await self.update_topic(topic)
        for put in state:
            self._put(put)

    def adopt_topics(self, topics: Sequence[Topic]) -> None:
        self._topics |= {topic.id: topic for topic in topics}

    async def update_topic(self, topic: Topic) -> None:
        self._check_open()
        self._topics[topic.id] = topic
        for partition in topic.partition_ids():
            self._logs.setdefault(partition, _Log())

    async def delete_topics(self, topics: Sequence[TopicId]) -> None:
        self._check_open()
        for topic_id in topics:
            topic = self._topics.pop(topic_id, None)
            for partition in topic.partition_ids() if topic else ():
                self._logs.pop(partition, None)

    def commit(self, operations: Sequence[Operation]) -> asyncio.Future[list[Outcome]]:
        self._check_open()
        done: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        refused: dict[int, Outcome] = {}
        """Refused operations, by `id`."""
        for operation in operations:
            refusal = self._refusal(operation)
            if refusal is not None:
                assert isinstance(operation, Append)
                if operation.required:
                    done.set_exception(OperationRefused(operation, refusal))
                    return done
                refused[id(operation)] = Outcome(-1, self._log(operation.partition).start, refusal)
        now = self._clock.now_ms()
        self.metrics.commits_per_sync.observe(1)
        written: list[Append] = []
        done.set_result([refused.get(id(each)) or self._outcome(each, now, written) for each in operations])
        for arrived in self._subscribers:
            for append in written:
                arrived(append.partition, append.header.length)
        return done

    def _outcome(self, operation: Operation, now_ms: int, written: list[Append]) -> Outcome:
        """Apply the operation; a batch that was added to its log is added to `written`."""
        if isinstance(operation, Put):
            self._put(operation)
            return PUT_DONE
        log = self._log(operation.partition)
        if isinstance(operation, Trim):
            log.trim(operation.offset)
            return Outcome(log.start, log.start)
        append = operation.as_append() if isinstance(operation, Refer) else operation
        if append is None:
            return Outcome(log.end, log.start)
        end = log.end
        base_offset = log.append(append, now_ms)
        if log.end > end:
            written.append(append)
        return Outcome(base_offset, log.start)

    def subscribe(self, arrived: Arrived, awaited: Awaited = nothing_awaited) -> None:
        self._subscribers.append(arrived)

    def watch(self, partitions: Iterable[PartitionId]) -> None:
        """No-op: no other broker writes here."""

    async def refresh(self, partitions: Sequence[PartitionId], *, with_producers: bool = False) -> None:
        """No-op: no other broker writes here."""

    def subscribe_definitions(self, changed: DefinitionsChanged) -> None:
        """No-op: no other broker writes here."""

    async def refresh_definitions(self) -> None:
        """No-op: no other broker writes here."""

    async def barrier(self) -> None:
        await self.commit([])  # a derived storage may delay commits

    def _refusal(self, operation: Operation) -> PosthouseError | None:
        """Why the operation is refused, or None. Raises UnknownPartition if the call itself is invalid."""
        if isinstance(operation, Put):
            return None
        log = self._log(operation.partition)
        if isinstance(operation, Append) and operation.header.producer_id >= 0:
            try:
                log.producers.repeated(operation.header)
            except (ProducerFenced, OutOfOrderSequence) as error:
                return error.with_traceback(None)
        return None

    def _put(self, put: Put) -> None:
        values = self._state.setdefault(put.space, {})
        if put.value is None:
            values.pop(put.key, None)
        else:
            values[put.key] = put.value

    @property
    def shared_state(self) -> None:
        """No other broker changes it."""

    @property
    def segment_objects(self) -> None:
        """There is no object store."""

    def take_state(self, space: Space, owner: bytes | None = None) -> dict[bytes, bytes]:
        return self._stored_state.take(space, owner)

    def bounds(self, partition: PartitionId) -> Bounds:
        log = self._log(partition)
        return log.bounds

    def size(self, partition: PartitionId) -> int:
        return self._log(partition).size

    async def read(
        self,
        partition: PartitionId,
        offset: int,
        max_bytes: int,
        *,
        at_least_one: bool = True,
        stable_only: bool = False,
    ) -> Slice:
        self._check_open()
        log = self._log(partition)
        if not log.start <= offset <= log.end:
            raise OffsetOutOfRange(f"offset {offset} is outside {log.start} to {log.end}")
        bounds = log.bounds
        end = bounds.stable if stable_only else bounds.end
        chunks: list[bytes] = []
        room = max_bytes
        for batch in log.between(offset, end) if offset < end else ():
            if batch.header.length > room and (chunks or not at_least_one):
                break
            chunks.append(batch.data)
            room -= batch.header.length
        return Slice(
            chunks[0] if len(chunks) == 1 else b"".join(chunks),
            bounds,
            log.producers.aborted_between(offset, end) if stable_only else (),
        )

    def aborted(self, partition: PartitionId, start: int, end: int) -> list[AbortedTransaction]:
        return self._log(partition).producers.aborted_between(start, end)

    def producers(self, partition: PartitionId) -> dict[int, Producer]:
        return self._log(partition).producers.active()

    async def find_timestamp(self, partition: PartitionId, timestamp: int) -> TimestampedOffset | None:
        self._check_open()
        log = self._log(partition)
        for batch in log.batches:
            if batch.header.max_timestamp < timestamp:
                continue
            for record in _readable(batch.data):
                if record.timestamp >= timestamp and record.offset >= log.start:
                    return TimestampedOffset(record.offset, record.timestamp)
        return None

    async def find_max_timestamp(self, partition: PartitionId) -> TimestampedOffset | None:
        self._check_open()
        log = self._log(partition)
        times = [
            record.timestamp
            for batch in log.batches
            for record in _readable(batch.data)
            if record.offset >= log.start
        ]
        return await self.find_timestamp(partition, max(times)) if times else None

    async def enforce_retention(
        self, archived: KeptElsewhere = nothing_elsewhere, needed: Needed = nothing_needed
    ) -> dict[PartitionId, int]:
        self._check_open()
        now = self._clock.now_ms()
        held_back: dict[PartitionId, int] = {}
        for topic in list(self._topics.values()):
            for partition in topic.partition_ids():
                log = self._logs[partition]
                start = wanted = _expired_before(log, topic, now, archived(partition))
                if wanted > log.start and (lowest := needed(partition)) is not None:
                    start = min(wanted, log.whole_batches_before(lowest))
                if start < wanted:
                    held_back[partition] = wanted
                self.metrics.retention_records += max(start - log.start, 0)
                log.trim(start)
        self.metrics.retention_runs += 1
        return held_back

    async def compact(self, needed: Needed = nothing_needed) -> None:
        self._check_open()
        now = self._clock.now_ms()
        for topic in list(self._topics.values()):
            if topic.config.is_compacted:
                for partition in topic.partition_ids():
                    self.metrics.compacted_partitions += 1
                    self._logs[partition].compact(topic.config, now, needed(partition))

    def _log(self, partition: PartitionId) -> _Log:
        log = self._logs.get(partition)
        if log is None:
            raise UnknownPartition(f"there is no partition {partition}")
        return log

    def _check_open(self) -> None:
        if self._closed:
            raise StorageClosed("the storage is closed")


def _expired_before(log: _Log, topic: Topic, now: int, archived: int) -> int:
    """The start that retention asks for. Every batch is its own segment; the last one counts as active."""
    config = topic.config
    if not config.is_deleted:
        return log.start
    excess = log.size - config.retention_bytes if config.retention_bytes >= 0 else 0
    local_excess = log.size - config.retention_local_bytes if config.retention_local_bytes >= 0 else 0
    archived = checked_archived(archived, log.bounds)
    start = log.start
    for number, batch in enumerate(log.batches):
        newest = batch.header.max_timestamp if batch.header.max_timestamp >= 0 else batch.created_ms
        too_old = 0 <= config.retention_ms < now - newest
        old_here = 0 <= config.retention_local_ms < now - newest
        closed = number < len(log.batches) - 1 and batch.header.last_offset < archived
        archived_here = closed and (old_here or local_excess >= batch.header.length)
        if not too_old and excess < batch.header.length and not archived_here:
            break
        start = batch.header.last_offset + 1
        excess -= batch.header.length
        local_excess -= batch.header.length
    return start


def _readable(batch: Readable) -> Iterator[Record]:
    """The records of a batch; none if the producer sent records that cannot be decoded."""
    try:
        yield from iter_records(batch)
    except (CorruptBatch, RecordTooLarge):
        return
