"""The log of one partition in memory."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace

from posthouse.model.errors import CorruptBatch, RecordTooLarge
from posthouse.model.topic_config import TopicConfig
from posthouse.records.batch import LEADER_EPOCH, Readable, stamp
from posthouse.records.control import is_commit
from posthouse.records.record import Record, iter_records
from posthouse.storage.bounds import Bounds, TimestampedOffset
from posthouse.storage.memory.compaction import CompactionProgress, StoredBatch, compact
from posthouse.storage.operations import Append
from posthouse.storage.producers import ProducerTable
from posthouse.storage.retention import checked_archived


class MemoryLog:
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

    def find_timestamp(self, timestamp: int) -> TimestampedOffset | None:
        """The first record with that time or a later one."""
        for batch in self.batches:
            if batch.header.max_timestamp < timestamp:
                continue
            for record in _readable(batch.data):
                if record.timestamp >= timestamp and record.offset >= self.start:
                    return TimestampedOffset(record.offset, record.timestamp)
        return None

    def find_max_timestamp(self) -> TimestampedOffset | None:
        times = [
            record.timestamp
            for batch in self.batches
            for record in _readable(batch.data)
            if record.offset >= self.start
        ]
        return self.find_timestamp(max(times)) if times else None

    def expired_before(self, config: TopicConfig, now_ms: int, archived: int) -> int:
        """The start that retention asks for. Every batch is a segment of its own; the last one is active."""
        if not config.is_deleted:
            return self.start
        excess = self.size - config.retention_bytes if config.retention_bytes >= 0 else 0
        local_excess = self.size - config.retention_local_bytes if config.retention_local_bytes >= 0 else 0
        archived = checked_archived(archived, self.bounds)
        start = self.start
        for number, batch in enumerate(self.batches):
            newest = batch.header.max_timestamp if batch.header.max_timestamp >= 0 else batch.created_ms
            too_old = 0 <= config.retention_ms < now_ms - newest
            old_here = 0 <= config.retention_local_ms < now_ms - newest
            closed = number < len(self.batches) - 1 and batch.header.last_offset < archived
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
