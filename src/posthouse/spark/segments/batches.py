"""Whole batches of segments, every one checked: what an object has must fit its place in the log exactly."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from posthouse.client.manifests import SegmentObject
from posthouse.model.errors import PosthouseError
from posthouse.records.batch import BatchHeader, Readable, iter_headers, verify_crc
from posthouse.spark.segments.errors import ObjectDamaged
from posthouse.spark.segments.prefetch import ObjectSource, fetched, windows


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedChunk:
    """Batches without gaps."""

    segment: SegmentObject
    data: Readable
    base: int
    next: int


def checked_chunks(source: ObjectSource, segments: Sequence[SegmentObject]) -> Iterator[CheckedChunk]:
    """All batches of the segments, in order, some megabytes at a time. Raises ObjectError.

    What is yielded has the right checksums, and offsets without gaps from the base of the segment on.
    """
    left: Readable = b""
    expected: int | None = None
    for window, data in fetched(source, windows(segments)):
        segment = window.segment
        whole = bytearray(left) + data if left else data
        chunk, size = _checked(segment, whole, expected)
        left = bytes(memoryview(whole)[size:])
        if chunk is not None:
            expected = chunk.next
        if window.is_last:
            if left or expected is None or expected <= segment.last:
                raise ObjectDamaged(f"its batches end before offset {segment.last}")
            expected = None
        if chunk is not None:
            yield chunk


def _checked(segment: SegmentObject, data: Readable, expected: int | None) -> tuple[CheckedChunk | None, int]:
    """The whole batches at the beginning, and their bytes; `expected` is the first offset, None if these are
    the first of the segment."""
    base, size = -1, 0
    try:
        for position, header in iter_headers(data):
            _check(segment, data, position, header, expected)
            base = header.base_offset if base < 0 else base
            expected = header.next_offset
            size = position + header.length
    except PosthouseError as error:
        raise ObjectDamaged(f"behind offset {expected}: {error}") from None
    if base < 0 or expected is None:
        return None, 0
    return CheckedChunk(segment=segment, data=memoryview(data)[:size], base=base, next=expected), size


def _check(
    segment: SegmentObject, data: Readable, position: int, header: BatchHeader, expected: int | None
) -> None:
    # An offset is not under the checksum.
    is_there = header.base_offset <= segment.base if expected is None else header.base_offset == expected
    if not is_there or header.last_offset_delta < 0:
        raise ObjectDamaged(f"offset {header.base_offset} is not where it should be")
    if not verify_crc(data, position, header.length):
        raise ObjectDamaged(f"the checksum of the batch at offset {header.base_offset} is wrong")
    if header.is_damage:
        raise ObjectDamaged(f"records from offset {header.base_offset} on were damaged before")
