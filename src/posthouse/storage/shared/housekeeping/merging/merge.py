"""One merge: consecutive segments of a log, and the segment that they become."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from posthouse.model.errors import DataDamaged
from posthouse.model.ids import PartitionId
from posthouse.model.topic_config import TopicConfig
from posthouse.storage.files.segments.header import Identity, decode_header
from posthouse.storage.files.segments.reader import walk
from posthouse.storage.files.segments.segment import HEADER_BYTES
from posthouse.storage.shared.housekeeping.merging.tiers import SmallSegment
from posthouse.storage.shared.housekeeping.segment_image import SegmentImage


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentMerge:
    log: int
    partition: PartitionId
    config: TopicConfig
    sources: Sequence[SmallSegment]

    @property
    def size(self) -> int:
        return sum(each.size for each in self.sources)

    @property
    def identity(self) -> tuple[int, int, int]:
        first = self.sources[0]
        return self.log, first.base, first.generation


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedSegment:
    merge: SegmentMerge
    image: SegmentImage


def merged(merge: SegmentMerge, data: Sequence[bytes]) -> MergedSegment:
    """The batches of all sources, whose bytes are `data`, as one segment of a new generation.

    Raises DataDamaged if one of them is damaged. Computes only, and lets other threads run meanwhile.
    """
    first, last = merge.sources[0], merge.sources[-1]
    image = SegmentImage(
        merge.partition,
        first.base,
        merge.config,
        created_ms=last.created_ms,
        generation=1 + max(each.generation for each in merge.sources),
    )
    for source, source_data in zip(merge.sources, data, strict=True):
        _add(image, merge.partition, source, source_data)
    return MergedSegment(merge=merge, image=image)


def _add(image: SegmentImage, partition: PartitionId, source: SmallSegment, data: bytes) -> None:
    place = f"bytes {source.pos} to {source.pos + source.size} of {source.key}"
    if decode_header(data[:HEADER_BYTES]) != Identity(partition, source.base, source.generation):
        raise DataDamaged(f"{place} are not the segment at offset {source.base}")
    next_offset = source.last + 1
    for step in walk(lambda size, at: data[at : at + size], 0, len(data), source.base, next_offset):
        if step.header is None:
            raise DataDamaged(f"{place}: {step.damage} cannot be read")
        image.add(step.batch, step.header)
        time.sleep(0)  # releases the interpreter: waiting threads run first
    if image.next_offset != next_offset:
        raise DataDamaged(f"{place} end at offset {image.next_offset - 1} instead of {source.last}")
