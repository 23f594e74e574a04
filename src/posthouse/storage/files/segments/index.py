"""The sparse index of one segment: offset → position and timestamp → position.

File `<partition>-<base offset>.index`, a sequence of blocks, added at checkpoints, big-endian:

    offset  size  field
         0     4  magic          "PHIX"
         4     4  crc            CRC32C of the segment's header, if it has one, then byte 8 to the block's end
         8     4  count          of entries
        12     8  covered        bytes of the segment that this and all blocks before it describe
        20     8  max timestamp  of those bytes
        28  24×n  entries        base offset, position, highest timestamp before that position

The segment's header is in the checksum so that the index of another segment is not taken for this one's.

Invariant: the batch with `base offset` begins at `position` of the segment; entries rise. The index is an
accelerator only: torn or damaged blocks are dropped, and uncovered bytes are indexed again by walking the
segment's batch headers. The catalog has the valid length of the file; bytes behind it are ignored.

One file serves both lookups because every entry has its timestamp: a second file per segment would double the
descriptors and the writes.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct

from crc32c import crc32c

MAGIC = b"PHIX"
NO_TIME = -(2**63)

_BLOCK = Struct(">4sIIQq")
_COVERED_BY_CRC_AT = 8
_ENTRY = Struct(">qqq")


@dataclass(frozen=True, slots=True)
class Entry:
    base_offset: int
    position: int
    time_before: int


class SparseIndex:
    """Entries from `start` to `covered` bytes of the segment, in memory.

    A segment from before this process started has its earlier entries on disk. They are loaded with `prepend`
    at the first read there.
    """

    __slots__ = (
        "_interval",
        "_offsets",
        "_positions",
        "_stored",
        "_times",
        "covered",
        "max_timestamp",
        "start",
    )

    def __init__(self, interval: int, start: int = 0, max_timestamp: int = NO_TIME) -> None:
        self._interval = interval
        self._offsets: array[int] = array("q")
        self._positions: array[int] = array("q")
        self._times: array[int] = array("q")
        self._stored = 0
        self.start = start
        self.covered = start
        self.max_timestamp = max_timestamp

    @property
    def is_complete(self) -> bool:
        return self.start == 0

    def __len__(self) -> int:
        return len(self._positions)

    def add(self, base_offset: int, position: int, length: int, max_timestamp: int) -> None:
        """Add the next batch of the segment. It gets an entry if the last entry is far enough behind."""
        positions = self._positions
        if not positions or position - positions[-1] >= self._interval:
            self._offsets.append(base_offset)
            positions.append(position)
            self._times.append(self.max_timestamp)
        self.covered = position + length
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp

    def position_of(self, offset: int) -> int:
        """A position at or before the batch that holds `offset`."""
        index = bisect_right(self._offsets, offset) - 1
        return self._positions[index] if index >= 0 else self.start

    def position_behind(self, offset: int) -> int:
        """A position behind the batch that holds `offset`, where another one begins, or `covered`."""
        index = bisect_right(self._offsets, offset)
        return self._positions[index] if index < len(self._positions) else self.covered

    def offset_at(self, position: int, otherwise: int) -> int:
        """The offset of the batch that begins at `position` if it has an entry, else `otherwise`."""
        index = bisect_left(self._positions, position)
        known = index < len(self._positions) and self._positions[index] == position
        return self._offsets[index] if known else otherwise

    def position_of_time(self, timestamp: int) -> int:
        """A position at or before the first batch with `timestamp` or a later one."""
        index = bisect_left(self._times, timestamp) - 1
        return self._positions[index] if index >= 0 else self.start

    def boundary_before(self, position: int) -> int:
        """The last known start of a batch at or before `position`."""
        index = bisect_right(self._positions, position) - 1
        return self._positions[index] if index >= 0 else self.start

    @property
    def first_offset(self) -> int | None:
        """The offset of the first batch that was added since `start`; None without one."""
        return self._offsets[0] if self._offsets else None

    def entries(self) -> list[Entry]:
        return [Entry(*values) for values in zip(self._offsets, self._positions, self._times, strict=True)]

    def prepend(self, earlier: "SparseIndex") -> None:
        """Add the entries before `start`."""
        assert earlier.covered == self.start and earlier.is_complete
        self._stored = earlier._stored
        self._offsets = earlier._offsets + self._offsets
        self._positions = earlier._positions + self._positions
        self._times = earlier._times + self._times
        self.start = 0

    def truncate(self, size: int) -> None:
        """Remove entries of truncated bytes. The highest timestamp stays as an upper bound."""
        keep = bisect_left(self._positions, size)
        del self._offsets[keep:], self._positions[keep:], self._times[keep:]
        self._stored = min(self._stored, keep)
        self.covered = min(self.covered, size)

    def forget_stored(self) -> None:
        """The file's content is invalid: the next block has all entries."""
        self._stored = 0

    def take_block(self, seed: int) -> bytes:
        """The entries added since the last call, as a block for the file. `seed` is that of the segment."""
        first = self._stored
        self._stored = len(self._positions)
        triples = zip(self._offsets[first:], self._positions[first:], self._times[first:], strict=True)
        return encode_block(triples, self.covered, self.max_timestamp, seed)


def encode_block(
    entries: Iterable[tuple[int, int, int]], covered: int, max_timestamp: int, seed: int
) -> bytes:
    body = b"".join(_ENTRY.pack(*entry) for entry in entries)
    block = bytearray(_BLOCK.pack(MAGIC, 0, len(body) // _ENTRY.size, covered, max_timestamp))
    block += body
    block[4:8] = crc32c(memoryview(block)[_COVERED_BY_CRC_AT:], seed).to_bytes(4, "big")
    return bytes(block)


def decode_blocks(data: bytes, interval: int, segment_size: int, seed: int) -> tuple[SparseIndex, bool]:
    """The index of `segment_size` bytes from the valid blocks of `data`, and whether all blocks were valid.

    Blocks that cover more than `segment_size` bytes are ignored.
    """
    index = SparseIndex(interval)
    view = memoryview(data)
    position = 0
    while position < len(data) and (index.covered < segment_size or not position):
        size = _block_size(view[position:], seed)
        if size == 0:
            return index, False
        block = view[position : position + size]
        _, _, count, covered, max_timestamp = _BLOCK.unpack_from(block)
        if covered > segment_size or covered < index.covered:
            return index, False
        for number in range(count):
            offset, at, time_before = _ENTRY.unpack_from(block, _BLOCK.size + number * _ENTRY.size)
            index._offsets.append(offset)
            index._positions.append(at)
            index._times.append(time_before)
        index.covered = covered
        index.max_timestamp = max_timestamp
        index._stored = len(index)
        position += size
    return index, True


def _block_size(view: memoryview, seed: int) -> int:
    """The size of the valid block at the start of `view`, 0 if there is none."""
    if len(view) < _BLOCK.size:
        return 0
    magic, crc, count, _, _ = _BLOCK.unpack_from(view)
    size: int = _BLOCK.size + count * _ENTRY.size
    if magic != MAGIC or size > len(view) or crc32c(view[_COVERED_BY_CRC_AT:size], seed) != crc:
        return 0
    return size
