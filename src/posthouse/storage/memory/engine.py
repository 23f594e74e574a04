"""Storage in memory: the same contract without durability. For tests and throw-away brokers."""

import asyncio
import base64
import os
from collections.abc import Collection, Iterable, Mapping, Sequence

from posthouse.model.clock import Clock
from posthouse.model.errors import (
    OffsetOutOfRange,
    OutOfOrderSequence,
    PosthouseError,
    ProducerFenced,
    StorageClosed,
    UnknownPartition,
)
from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.scopes import Scope
from posthouse.model.topics import Topic
from posthouse.storage.arrivals import Arrived, Awaited, nothing_awaited
from posthouse.storage.bounds import Bounds, Slice, TimestampedOffset
from posthouse.storage.condition import StorageCondition
from posthouse.storage.definition_changes import DefinitionsChanged
from posthouse.storage.memory.memory_log import MemoryLog
from posthouse.storage.metrics import StorageMetrics
from posthouse.storage.operations import Append, Operation, Put, Refer, Trim
from posthouse.storage.outcomes import PUT_DONE, OperationRefused, Outcome
from posthouse.storage.producers import AbortedTransaction, Producer
from posthouse.storage.retention import (
    KeptElsewhere,
    Needed,
    nothing_elsewhere,
    nothing_needed,
)
from posthouse.storage.spaces import Space
from posthouse.storage.stored_state import StoredState


class MemoryStorage:
    def __init__(self, clock: Clock, *, producer_expiry_ms: int = 24 * 3600 * 1000) -> None:
        self._clock = clock
        self._producer_expiry_ms = producer_expiry_ms
        self.metrics = StorageMetrics()
        self._topics: dict[TopicId, Topic] = {}
        self._logs: dict[PartitionId, MemoryLog] = {}
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

    async def coordinate(self) -> None:
        """No-op: there are no other brokers."""

    @property
    def awaits_scopes(self) -> bool:
        return False

    async def assign_scopes(self, scopes: Mapping[str, Scope]) -> None:
        """No-op: there are no other brokers."""

    async def take_namespaces(self, scope: Scope) -> None:
        """No-op: there are no other brokers."""

    def serve_namespaces(self, scope: Scope) -> None:
        """No-op: there are no other brokers."""

    def leave_namespaces(self, scope: Scope) -> None:
        """No-op: there are no other brokers."""

    async def stop_coordinating(self) -> None:
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
            self._logs.setdefault(partition, MemoryLog())

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

    def subscribe_to_others(self, arrived: Arrived) -> None:
        """No-op: no other broker writes here."""

    def watch(self, partitions: Iterable[PartitionId]) -> None:
        """No-op: no other broker writes here."""

    async def refresh(self, partitions: Sequence[PartitionId], *, with_producers: bool = False) -> None:
        """No-op: no other broker writes here."""

    def subscribe_definitions(self, changed: DefinitionsChanged) -> None:
        """No-op: no other broker writes here."""

    async def refresh_definitions(self) -> None:
        """No-op: no other broker writes here."""

    async def settle_definitions(self) -> None:
        """No-op: a change fails with an answer."""

    async def announce_sources(self, names: Collection[str], scope: Scope) -> list[str]:
        """No other broker creates topics."""
        return []

    async def give_topics(self, topics: Sequence[Topic], scope: Scope) -> None:
        """No-op: there are no other brokers."""

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
    def log_scopes(self) -> None:
        """One broker keeps house for all logs."""

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
        return self._log(partition).find_timestamp(timestamp)

    async def find_max_timestamp(self, partition: PartitionId) -> TimestampedOffset | None:
        self._check_open()
        return self._log(partition).find_max_timestamp()

    async def enforce_retention(
        self, archived: KeptElsewhere = nothing_elsewhere, needed: Needed = nothing_needed
    ) -> dict[PartitionId, int]:
        self._check_open()
        now = self._clock.now_ms()
        held_back: dict[PartitionId, int] = {}
        for topic in list(self._topics.values()):
            for partition in topic.partition_ids():
                log = self._logs[partition]
                log.producers.expire(now - self._producer_expiry_ms)
                start = wanted = log.expired_before(topic.config, now, archived(partition))
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

    def _log(self, partition: PartitionId) -> MemoryLog:
        log = self._logs.get(partition)
        if log is None:
            raise UnknownPartition(f"there is no partition {partition}")
        return log

    def _check_open(self) -> None:
        if self._closed:
            raise StorageClosed("the storage is closed")
