"""Segment files, checked batch by batch, as segments for the object store.

Files of older versions get a header, and a large file becomes several segments: an object is made in memory.
Nothing else changes: batches keep their bytes and offsets.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass

from posthouse.model.errors import DataDamaged
from posthouse.records.batch import HEADER_SIZE
from posthouse.storage.files.segments.header import start_of
from posthouse.storage.files.segments.reader import walk
from posthouse.storage.shared.administration.transfer.local_source import LocalLog, LocalSegment
from posthouse.storage.shared.housekeeping.segment_image import SegmentImage

SEGMENT_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CutSegment:
    log: LocalLog
    image: SegmentImage
    clean_to: int
    horizon: int


def cut(log: LocalLog, first_offset: int, *, segment_bytes: int = SEGMENT_BYTES) -> Iterator[CutSegment]:
    """The segments of a log from `first_offset` on, where a batch begins. Blocks.

    Raises DataDamaged at the first bytes that are not as they should be.
    """
    expected = first_offset
    for segment in log.segments:
        if segment.next_offset <= first_offset:
            continue
        for made in _cut_file(log, segment, first_offset, segment_bytes):
            if made.image.base_offset != expected:
                raise DataDamaged(f"{segment.path} does not begin with offset {expected} of {log.name}")
            yield made
            expected = made.image.next_offset
    if expected != log.end:
        raise DataDamaged(f"{log.name} ends at offset {log.end}, but its segments at {expected}")


def _cut_file(
    log: LocalLog, segment: LocalSegment, first_offset: int, segment_bytes: int
) -> Iterator[CutSegment]:
    row = segment.row
    image: SegmentImage | None = None
    try:
        handle = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise DataDamaged(f"{segment.path} is missing; {log.name} cannot be imported") from None
    try:
        other = start_of(os.pread(handle, HEADER_SIZE, 0)).misplaced(segment.path, has_header=row.has_header)
        if other is not None:
            raise DataDamaged(f"{segment.path} is {other}: it was moved or swapped with another file")
        steps = walk(
            lambda size, at: os.pread(handle, size, at), 0, row.size, row.base_offset, segment.next_offset
        )
        for step in steps:
            header = step.header
            if header is None:
                raise DataDamaged(
                    f"{segment.path} is damaged: {step.damage} of {log.name}; 'posthouse log verify' shows "
                    "all damage. Restore the file from a copy"
                )
            if header.next_offset <= first_offset:
                continue
            if image is not None and image.batch_bytes + header.length > segment_bytes:
                yield _made(log, segment, image)
                image = None
            if image is None:
                image = SegmentImage(
                    log.partition,
                    header.base_offset,
                    log.topic.config,
                    created_ms=row.created_ms,
                    generation=row.generation,
                )
            image.add(step.batch, header)
    finally:
        os.close(handle)
    if image is not None:
        yield _made(log, segment, image)


def _made(log: LocalLog, segment: LocalSegment, image: SegmentImage) -> CutSegment:
    clean_to = min(segment.row.clean_to, image.next_offset)
    return CutSegment(log=log, image=image, clean_to=clean_to, horizon=segment.row.horizon)
