"""Reading batches from one segment file: fast for verified bytes, with checks for all others.

All functions block or compute; none changes a Segment. A checked read verifies every checksum. Behind damaged
bytes it searches for the next whole batch, so that the rest can be served.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from posthouse.model.errors import CorruptBatch, UnsupportedFormat
from posthouse.records.batch import HEADER_SIZE, BatchHeader, Readable, parse_header, verify_crc
from posthouse.storage.files.segments.header import decode_header
from posthouse.storage.files.segments.index import SparseIndex
from posthouse.storage.files.segments.segment import HEADER_BYTES, Damage

Reader: TypeAlias = Callable[[int, int], bytes]
"""(size, position) → bytes of one file."""

CHUNK = 256 * 1024
EPOCH_AND_MAGIC = b"\x00\x00\x00\x00\x02"
"""Bytes 12 to 16 of every stored batch: leader epoch 0, then magic 2. The search for a batch looks for
them."""
EPOCH_AT = 12


@dataclass(slots=True)
class Checked:
    """The result of a checked read. `data` begins at `position`."""

    data: bytes | memoryview = b""
    position: int = 0
    damage: list[Damage] = field(default_factory=list)
    is_last: bool = False
    """The segment had no further whole batch: continue with the next segment."""
    end_offset: int = 0
    """The first offset behind the segment at the time of the read."""


def header_at(data: Readable, position: int) -> BatchHeader | None:
    """The batch header at `position`, None if the bytes cannot be one."""
    try:
        return parse_header(data, position)
    except (CorruptBatch, UnsupportedFormat):
        return None


def walk(read: Reader, position: int, end: int, first_offset: int, end_offset: int) -> Iterator["Step"]:
    """Every batch from `position` to `end`, with its checksum verified; damaged ranges are returned as
    Damage.

    `first_offset` is the offset of the batch at `position`, `end_offset` is the first offset behind the end.
    The checksum does not cover offsets; they are proven by being consecutive.
    """
    if position == 0 and decode_header(read(HEADER_BYTES, 0)) is not None:
        position = HEADER_BYTES
    expected = first_offset
    while position < end:
        window = read(min(CHUNK, end - position), position)
        at = 0
        while position < end:
            header = header_at(window, at)
            if at and (header is None or at + header.length > len(window)):
                break  # the window may end inside this batch: read a window that begins with it
            if header is not None and len(window) < header.length <= end - position:
                window = read(header.length, position)
            if (
                header is None
                or header.base_offset != expected
                or not _is_whole(window, at, header, expected, end_offset)
            ):
                damage = _find_next(read, position, end, expected, end_offset)
                yield Step(position, None, damage)
                position, expected = damage.end, damage.next_offset
                break
            yield Step(position, header, None, window, at)
            at += header.length
            position += header.length
            expected = header.next_offset


@dataclass(slots=True)
class Step:
    """One step along a segment: a good batch, with the bytes that contain it, or a damaged range."""

    position: int
    header: BatchHeader | None
    damage: Damage | None
    window: bytes = b""
    at: int = 0

    @property
    def batch(self) -> memoryview:
        assert self.header is not None
        return memoryview(self.window)[self.at : self.at + self.header.length]


def _is_whole(
    window: bytes | memoryview, at: int, header: BatchHeader, expected: int, end_offset: int
) -> bool:
    return (
        at + header.length <= len(window)
        and expected <= header.base_offset
        and header.last_offset_delta >= 0
        and header.leader_epoch == 0
        and header.next_offset <= end_offset
        and verify_crc(window, at, header.length)
    )


def _find_next(read: Reader, position: int, end: int, expected: int, end_offset: int) -> Damage:
    """The damaged range from `position` to the next good batch, or to the end."""
    damaged = header_at(read(HEADER_SIZE, position), 0)
    if damaged is not None:  # usually the length is right, and no search is needed
        behind = position + damaged.length
        header = _good_batch(read, behind, end, expected, end_offset)
        if header is not None or behind == end:
            return Damage(position, behind, expected, header.base_offset if header else end_offset)
    at = position + 1
    while at + HEADER_SIZE <= end:
        window = read(min(CHUNK, end - at), at)
        if len(window) < HEADER_SIZE:
            break
        hook = window.find(EPOCH_AND_MAGIC)
        while hook >= 0:
            start = at + hook - EPOCH_AT
            if start > position:
                header = header_at(read(HEADER_SIZE, start), 0)
                # Checking the successor is cheap; a checksum may cover the whole rest of the file.
                if (
                    header is not None
                    and _is_followed(read, start, end, header)
                    and _good_batch(read, start, end, expected, end_offset) is not None
                ):
                    return Damage(position, start, expected, header.base_offset)
            hook = window.find(EPOCH_AND_MAGIC, hook + 1)
        if at + len(window) >= end:
            break
        at += len(window) - (EPOCH_AT + len(EPOCH_AND_MAGIC))
    return Damage(position, end, expected, end_offset)


def _good_batch(read: Reader, start: int, end: int, expected: int, end_offset: int) -> BatchHeader | None:
    header = header_at(read(HEADER_SIZE, start), 0)
    if header is None or start + header.length > end or header.base_offset < expected:
        return None
    batch = read(header.length, start)
    return header if _is_whole(batch, 0, header, expected, end_offset) else None


def _is_followed(read: Reader, start: int, end: int, header: BatchHeader) -> bool:
    """Whether the next batch has the next offset. A batch inside a message's value has no such successor."""
    behind = start + header.length
    following = header_at(read(HEADER_SIZE, behind), 0)
    return behind == end or (following is not None and following.base_offset == header.next_offset)


def read_checked(
    read: Reader,
    start: int,
    offset: int,
    max_bytes: int,
    at_least_one: bool,
    *,
    base_offset: int,
    end: int,
    end_offset: int,
) -> Checked:
    """Good batches from the one that holds `offset`, or from the next good one, without a gap between them.

    `start` is a position at or before that batch, and `base_offset` the offset at `start`.
    """
    result = Checked(is_last=True, end_offset=end_offset)
    chunks: list[memoryview] = []
    room = max_bytes
    for step in walk(read, start, end, base_offset, end_offset):
        if step.damage is not None:
            result.damage.append(step.damage)
            if chunks:
                break
            continue
        assert step.header is not None
        if step.header.next_offset <= offset:
            continue
        result.is_last = False
        if step.header.length > room and (chunks or not at_least_one):
            break
        if not chunks:
            result.position = step.position
        chunks.append(step.batch)
        room -= step.header.length
    result.data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
    return result


def build_index(
    read: Reader, index: SparseIndex, end: int, base_offset: int, end_offset: int
) -> list[Damage]:
    """Extend `index` over the bytes that it does not cover yet."""
    damage = []
    covered = index.covered
    # The offset behind the covered bytes is found only by walking from the last entry.
    start = index.boundary_before(covered)
    for step in walk(read, start, end, index.offset_at(start, base_offset), end_offset):
        if step.damage is not None:
            damage.append(step.damage)
        elif step.position >= covered:
            header = step.header
            assert header is not None
            index.add(header.base_offset, step.position, header.length, header.max_timestamp)
    index.covered = end
    return damage
