"""All buckets of a schedule: chooses the bucket of an entry, and returns the operations that store it."""

import logging
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from posthouse.broker.schedule.bucket import Bucket, decode, log_in
from posthouse.broker.schedule.logs import ScheduleLogs
from posthouse.broker.schedule.periods import FINEST_BITS, Period
from posthouse.records.batch import parse_header
from posthouse.records.builder import BatchBuilder
from posthouse.records.raw import NO_HEADERS
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Append, Operation

log = logging.getLogger(__name__)


class BucketEntry(NamedTuple):
    """One record of a log, and its period."""

    period: Period
    due_ms: int
    sequence: bytes
    value: bytes


class Buckets:
    """Owned by the event loop."""

    def __init__(self, storage: Storage, logs: ScheduleLogs, prefix: bytes = b"") -> None:
        self._storage = storage
        self._logs = logs
        self._prefix = prefix
        """Of the keys in storage."""
        self._by_log: dict[int, Bucket] = {}
        self._taking: dict[Period, Bucket] = {}
        """Of several buckets with one period at most one accepts entries; the others are being emptied."""

    def __iter__(self) -> Iterator[Bucket]:
        return iter(self._by_log.values())

    def __len__(self) -> int:
        return len(self._by_log)

    def load(self, state: dict[bytes, bytes]) -> None:
        for key, value in state.items():
            number = log_in(key)
            if self._logs.claim(number):
                self._add(decode(number, self._logs.partition(number), value, self._prefix))
            else:
                log.error("schedule, log %d: missing; its delayed messages are lost", number)
        for number in self._logs.free_logs():
            partition = self._logs.partition(number)
            bounds = self._storage.bounds(partition)
            if bounds.start < bounds.end:
                # A bucket is stored with its first entry. Firing an entry twice is better than losing it.
                log.error("schedule, log %d: has entries but no state; all of them are published", number)
                self._logs.claim(number)
                self._add(Bucket(Period(FINEST_BITS, 0), number, partition, prefix=self._prefix))

    def _add(self, bucket: Bucket) -> None:
        self._by_log[bucket.log] = bucket
        self._taking.setdefault(bucket.period, bucket)

    def of_log(self, number: int) -> Bucket:
        return self._by_log[number]

    def store(self, entries: Iterable[BucketEntry], now_ms: int) -> list[Operation]:
        """One batch for each bucket. To be committed in the same iteration of the event loop.

        Raises Unavailable if a bucket is needed and no log is free.
        """
        builders: dict[Period, BatchBuilder] = {}
        for period, due_ms, sequence, value in entries:
            builder = builders.get(period)
            if builder is None:
                builder = builders[period] = BatchBuilder()
            builder.add_raw(sequence, value, NO_HEADERS, due_ms)
        operations: list[Operation] = []
        for period, builder in builders.items():
            bucket = self._taking.get(period)
            if bucket is None or bucket.mark.due_ms > now_ms:
                # If the clock was set back, a new entry would be late although it is not due.
                bucket = self._new(period)
            batch = memoryview(builder.build())
            operations.append(Append(bucket.partition, batch, parse_header(batch)))
            if not self.count(bucket):
                operations.append(bucket.put(bucket.mark, bucket.fired))
        return operations

    def _new(self, period: Period) -> Bucket:
        number = self._logs.take()
        bucket = Bucket(period, number, self._logs.partition(number), prefix=self._prefix)
        self._by_log[number] = self._taking[period] = bucket
        return bucket

    def count(self, bucket: Bucket) -> int:
        """Number of its durable entries, fired or not."""
        bounds = self._storage.bounds(bucket.partition)
        return bounds.end - bounds.start

    @property
    def waiting(self) -> int:
        return sum(self.count(bucket) - bucket.fired for bucket in self)

    async def close(self, buckets: Iterable[Bucket]) -> None:
        """Close buckets for new entries. New entries of their periods get new buckets."""
        closing = [bucket for bucket in buckets if not bucket.is_closed]
        if not closing:
            return
        for bucket in closing:
            if self._taking.get(bucket.period) is bucket:
                del self._taking[bucket.period]
        await self._storage.barrier()  # pending appends may still be for these buckets
        for bucket in closing:
            bucket.is_closed = True

    def remove(self, bucket: Bucket) -> None:
        """The removal of the bucket is durable, and its log is trimmed."""
        del self._by_log[bucket.log]
        self._logs.recycle(bucket.log)
