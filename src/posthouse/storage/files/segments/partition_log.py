"""One partition's log: its segments in order, its bounds, and the position of the next batch.

Owned by the event loop; does no I/O. There are two ends: `end` is durable and visible to readers;
`next_offset` is ahead of it by the batches that are placed but not yet written.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from posthouse.model.ids import PartitionId
from posthouse.model.topic_config import TopicConfig
from posthouse.records.batch import BatchHeader
from posthouse.records.control import is_commit
from posthouse.storage.bounds import Bounds
from posthouse.storage.files.segments.segment import Segment
from posthouse.storage.producers import Producer, ProducerTable
from posthouse.storage.retention import checked_archived


@dataclass(slots=True)
class Placement:
    """The offset and position of one batch. Created for every batch, hence not frozen."""

    log: "PartitionLog"
    segment: Segment
    position: int
    base_offset: int
    batch: memoryview
    header: BatchHeader
    producer: Producer | None
    """State of the batch's producer after this batch; None for a batch without a producer id."""

    def durable(self) -> None:
        header = self.header
        self.segment.appended(self.base_offset, self.position, header.length, header.max_timestamp)
        self.log.end = self.base_offset + header.last_offset_delta + 1
        if self.producer is not None:
            aborts = header.is_control and not is_commit(self.batch)
            self.log.producers.written(header.producer_id, self.producer, self.base_offset, aborts=aborts)


@dataclass(slots=True)
class Repetition:
    """A duplicate of a batch that is in the log or being written."""

    log: "PartitionLog"
    base_offset: int


class PartitionLog:
    __slots__ = (
        "config",
        "directory",
        "end",
        "id",
        "is_deleted",
        "name",
        "next_offset",
        "producers",
        "segments",
        "start",
        "was_trimmed",
    )

    def __init__(
        self,
        id: PartitionId,
        directory: str,
        config: TopicConfig,
        *,
        name: str = "",
        start: int = 0,
        end: int = 0,
    ) -> None:
        self.id = id
        self.name = name or str(id)
        """Topic and partition, for messages."""
        self.directory = directory
        self.config = config
        self.segments: list[Segment] = []
        self.producers = ProducerTable()
        self.start = start
        self.end = end
        self.next_offset = end
        self.is_deleted = False
        self.was_trimmed = False
        """The catalog still has rows of removed segments."""

    @property
    def bounds(self) -> Bounds:
        first_open = self.producers.first_open()
        return Bounds(self.start, self.end, self.end if first_open is None else first_open)

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def is_settled(self) -> bool:
        """Whether no batch is being written."""
        return self.next_offset == self.end

    def place(self, batch: memoryview, header: BatchHeader, now_ms: int) -> Placement | Repetition:
        """Assign the next offset and a position in the active segment; roll the segment if due.

        Raises if the producer state rejects the batch.
        """
        producer = None
        if header.producer_id >= 0:
            repeated = self.producers.repeated(header)
            if repeated is not None:
                return Repetition(self, repeated)
            producer = self.producers.place(header, self.next_offset, now_ms)
        segment = self.segments[-1] if self.segments else None
        if segment is None or self._is_due(segment, header.length, now_ms):
            segment = self.add_segment(self.next_offset, now_ms)
        position, offset = segment.next_position or segment.first_position, self.next_offset
        placement = Placement(self, segment, position, offset, batch, header, producer)
        segment.next_position = position + header.length
        self.next_offset += header.last_offset_delta + 1
        return placement

    def _is_due(self, segment: Segment, length: int, now_ms: int) -> bool:
        if segment.next_position == 0:
            return False
        return (
            segment.next_position - segment.first_position + length > self.config.segment_bytes
            or now_ms - segment.created_ms >= self.config.segment_ms
            # Only closed segments are compacted.
            or (now_ms - segment.created_ms >= self.config.max_compaction_lag_ms and self.config.is_compacted)
            or segment.misplaced != ""
        )

    def add_segment(self, base_offset: int, created_ms: int, generation: int = 0) -> Segment:
        segment = Segment(
            self.directory,
            self.id.index,
            base_offset,
            created_ms=created_ms,
            interval=self.config.index_interval_bytes,
            generation=generation,
        )
        self.segments.append(segment)
        return segment

    def roll_back(self) -> None:
        """Discard all placed batches that did not become durable."""
        self.next_offset = self.end
        self.producers.roll_back()
        while self.segments and self.segments[-1].size == 0 and self.segments[-1].base_offset >= self.end:
            self.segments.pop()
        for segment in self.segments:
            segment.roll_back()

    def trim(self, offset: int) -> list[Segment]:
        """Raise the start. Segments below it are removed and returned."""
        self.start = max(self.start, min(offset, self.end))
        self.producers.trim(self.start)
        gone = []
        while self.segments and self._end_of(0) <= self.start and self.segments[0].is_settled:
            gone.append(self.segments.pop(0))
            self.was_trimmed = True
        return gone

    def replace(self, old: Sequence[Segment], new: Segment) -> bool:
        """Replace consecutive segments by `new`; False if all of them were removed meanwhile."""
        there = [segment for segment in old if self.has(segment)]
        if not there:
            return False
        first = self.segments.index(there[0])
        self.segments[first : first + len(there)] = [new]
        return True

    def found(
        self, segment: Segment, position: int, batch: memoryview, header: BatchHeader, now_ms: int
    ) -> None:
        """Add a batch that recovery found as the next one of the log."""
        segment.appended(header.base_offset, position, header.length, header.max_timestamp)
        self.end = header.next_offset
        if header.producer_id >= 0:
            aborts = header.is_control and not is_commit(batch)
            self.producers.replay(header, header.base_offset, now_ms, aborts=aborts)

    def segment_number(self, offset: int) -> int:
        """The number of the segment that holds `offset`."""
        return max(bisect_right(self.segments, offset, key=lambda segment: segment.base_offset) - 1, 0)

    def end_offset_of(self, segment: Segment) -> int:
        """The first offset behind a segment; for the last segment the durable end."""
        return self._end_of(self.segments.index(segment))

    def has(self, segment: Segment) -> bool:
        """Whether the segment is still part of this log."""
        return segment in self.segments

    def _end_of(self, number: int) -> int:
        """The next segment may have no durable records yet; then the durable end counts."""
        following = number + 1
        if following == len(self.segments):
            return self.end
        return min(self.segments[following].base_offset, self.end)

    def expired_before(self, now_ms: int, archived: int = 0) -> int:
        """The start that the retention settings ask for: whole segments only.

        Records below `archived` have a copy outside of the broker, so `retention.local.*` applies to them.
        """
        config = self.config
        start = self.start
        if not config.is_deleted:
            return start
        archived = checked_archived(archived, self.bounds)
        excess = self.size - config.retention_bytes if config.retention_bytes >= 0 else -1
        local_excess = self.size - config.retention_local_bytes if config.retention_local_bytes >= 0 else -1
        for number, segment in enumerate(self.segments):
            last = number == len(self.segments) - 1
            newest = segment.max_timestamp if segment.max_timestamp >= 0 else segment.created_ms
            too_old = 0 <= config.retention_ms < now_ms - newest
            too_much = not last and excess >= segment.size
            end = self._end_of(number)
            old_here = 0 <= config.retention_local_ms < now_ms - newest
            archived_here = not last and end <= archived and (old_here or local_excess >= segment.size)
            if not (too_old or too_much or archived_here) or (last and not self.is_settled):
                break
            start = end
            excess -= segment.size
            local_excess -= segment.size
        return start

    def whole_segments_before(self, offset: int) -> int:
        """The highest start that removes whole segments only and nothing from `offset` on."""
        start = self.start
        for number in range(len(self.segments)):
            end = self._end_of(number)
            if end > offset:
                break
            start = max(start, end)
        return start
