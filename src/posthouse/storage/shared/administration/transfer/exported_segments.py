"""How the bytes of a log are divided into segments: by the segments of the shared storage, then its tail."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from posthouse.model.ids import PartitionId, TopicId
from posthouse.records.batch import iter_headers
from posthouse.storage.cleaning.batch_cleaner import NO_HORIZON
from posthouse.storage.contract import Storage
from posthouse.storage.shared.database import DatabaseConnection, meaning
from posthouse.storage.shared.housekeeping.segment_image import SegmentImage

_READ_BYTES = 4 * 1024 * 1024
_TAIL_BYTES = 64 * 1024 * 1024
"""Largest segment that is made of runs: it is made in memory."""

_SEGMENTS = """
SELECT l.topic, l.partition, s.last + 1, s.created_ms, s.clean_to, s.horizon
FROM segment s JOIN log l ON l.id = s.log JOIN topic t ON t.id = l.topic AND t.deleted_at IS NULL
WHERE s.last >= l.start AND s.base < l.segments_to ORDER BY s.log, s.base
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """What becomes one segment: the offsets up to before `next_offset`."""

    next_offset: int
    created_ms: int
    clean_to: int = 0
    horizon: int = NO_HORIZON


async def load_extents(connection: DatabaseConnection) -> dict[PartitionId, list[Extent]]:
    """Those of the segments of all logs, in order."""
    found: dict[PartitionId, list[Extent]] = {}
    async with meaning("reading the segments"):
        rows = await connection.execute(_SEGMENTS)
        for topic, index, next_offset, created_ms, clean_to, horizon in await rows.fetchall():
            partition = PartitionId(TopicId(topic.bytes), index)
            found.setdefault(partition, []).append(
                Extent(next_offset=next_offset, created_ms=created_ms, clean_to=clean_to, horizon=horizon)
            )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedSegment:
    image: SegmentImage
    extent: Extent


async def exported_segments(
    storage: Storage, partition: PartitionId, extents: Sequence[Extent], *, offset: int, now_ms: int
) -> AsyncIterator[ExportedSegment]:
    """The segments of a log from `offset` on, where a batch begins, or from the start of the log."""
    topic = storage.topics[partition.topic]
    end = storage.bounds(partition).end
    offset = max(offset, storage.bounds(partition).start)
    tail = Extent(next_offset=end, created_ms=now_ms)
    tail_bytes = min(topic.config.segment_bytes, _TAIL_BYTES)
    left = [each for each in extents if each.next_offset > offset] + [tail]
    image: SegmentImage | None = None
    while offset < end:
        data = memoryview((await storage.read(partition, offset, _READ_BYTES)).data)
        for position, header in iter_headers(data):
            is_full = left[0] is tail and image is not None and image.batch_bytes + header.length > tail_bytes
            if image is not None and (is_full or header.base_offset >= left[0].next_offset):
                yield ExportedSegment(image=image, extent=left[0])
                image = None
            while header.base_offset >= left[0].next_offset:
                left.pop(0)
            if image is None:
                created_ms = left[0].created_ms
                image = SegmentImage(
                    partition, header.base_offset, topic.config, created_ms=created_ms, generation=0
                )
            image.add(data[position : position + header.length], header)
            offset = header.next_offset
    if image is not None:
        yield ExportedSegment(image=image, extent=left[0])
