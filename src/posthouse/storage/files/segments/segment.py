"""A segment: one file of consecutive batches of a partition, and its state in memory.

File `<partition>-<base offset>.log`: a header (see `segment_header`), then batches as `records.batch` lays
them out, without gaps. Files of older versions have no header and begin with a batch. The file is only
appended to. The catalog and the journal have its valid size; bytes behind that were never acknowledged and
are overwritten or cut.

File `<partition>-<base offset>-<generation>.log`: the same, written by compaction in place of one or more
older files (see `compaction`) and never appended to. The catalog has the valid generation.

Invariant, for both: each batch begins with the offset that follows the last one of the previous batch.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

from posthouse.storage.cleaning.batch_cleaner import NO_HORIZON
from posthouse.storage.files.segments.index import NO_TIME, SparseIndex


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a segment that are not valid batches. They stay in the file."""

    position: int
    end: int
    first_offset: int
    next_offset: int
    """The first readable offset behind the damage."""

    def __str__(self) -> str:
        if self.next_offset == self.first_offset:
            return f"bytes {self.position} to {self.end}, no offsets"
        return f"bytes {self.position} to {self.end}, offsets {self.first_offset} to {self.next_offset - 1}"


HEADER_BYTES = 48
"""The size of a segment file's header. Every batch is larger, so only a first batch can be at this
position."""
UNFINISHED = ".log.part"
"""Suffix of a file while compaction writes it."""

_NAME = re.compile(r"(\d+)-(\d{20})(?:-(\d+))?\.log")


class SegmentName(NamedTuple):
    partition: int
    base_offset: int
    generation: int
    """0 for a file that was appended to, higher for a file that compaction wrote."""


def segment_name(partition: int, base_offset: int, generation: int = 0) -> str:
    suffix = f"-{generation}" if generation else ""
    return f"{partition}-{base_offset:020d}{suffix}.log"


def parse_segment_name(name: str) -> SegmentName | None:
    """The parts of a segment's file name; None for another name."""
    match = _NAME.fullmatch(name)
    return SegmentName(int(match[1]), int(match[2]), int(match[3] or 0)) if match else None


class Segment:
    """Owned by the event loop. `size` is durable; `next_position` is ahead by the bytes that are being
    written."""

    __slots__ = (
        "_checked_from",
        "_checked_to",
        "_written_from",
        "base_offset",
        "clean_to",
        "created_ms",
        "damage",
        "generation",
        "has_header",
        "horizon",
        "index",
        "index_size",
        "indexed_to",
        "is_changed",
        "misplaced",
        "next_position",
        "path",
        "size",
        "was_read",
    )

    def __init__(
        self,
        directory: str,
        partition: int,
        base_offset: int,
        *,
        created_ms: int,
        interval: int,
        size: int = 0,
        max_timestamp: int = NO_TIME,
        index_size: int = 0,
        generation: int = 0,
        clean_to: int = 0,
        horizon: int = NO_HORIZON,
        has_header: bool = True,
    ) -> None:
        self.path = f"{directory}/{segment_name(partition, base_offset, generation)}"
        self.base_offset = base_offset
        self.generation = generation
        self.clean_to = clean_to
        """Compacted up to this offset: below it no two records have the same key."""
        self.horizon = horizon
        """The earliest delete horizon: from this time on compaction may remove a tombstone or a marker
        here."""
        self.has_header = has_header
        self.misplaced = ""
        """The problem if the file is another segment's: it is neither read nor written. Otherwise empty."""
        self.created_ms = created_ms
        self.size = size
        self.next_position = size
        self.index_size = index_size
        self.indexed_to = size
        """Bytes of the segment that the persisted index covers. Approximate after a recovery that added
        batches."""
        self.is_changed = False
        """Whether the segment differs from its row in the catalog."""
        self.was_read = False
        self.index = SparseIndex(interval, size, max_timestamp)
        self.damage: tuple[Damage, ...] = ()
        self._checked_from = self._checked_to = 0
        self._written_from = size

    @property
    def index_path(self) -> str:
        return self.path.removesuffix(".log") + ".index"

    @property
    def first_position(self) -> int:
        """Position of the first batch."""
        return HEADER_BYTES if self.has_header else 0

    @property
    def batch_bytes(self) -> int:
        """Bytes of durable batches, without the header."""
        return max(self.size - self.first_position, 0)

    @property
    def tail(self) -> int:
        """Position behind the durable batches."""
        return self.size or self.first_position

    @property
    def max_timestamp(self) -> int:
        return self.index.max_timestamp

    def appended(self, base_offset: int, position: int, length: int, max_timestamp: int) -> None:
        """A batch has become durable. Its checksum was verified when it arrived."""
        self.size = position + length
        self.next_position = max(self.next_position, self.size)
        self.is_changed = True
        self.index.add(base_offset, position, length, max_timestamp)

    @property
    def is_settled(self) -> bool:
        """Whether no batch is being written to the file."""
        return self.next_position == self.size

    def roll_back(self) -> None:
        """Discard the bytes that were being written."""
        self.next_position = self.size

    def is_checked(self, position: int, end: int) -> bool:
        """Whether this process has verified the checksums of these bytes."""
        if self.damage:
            return False
        return position >= self._written_from or (self._checked_from <= position and end <= self._checked_to)

    def checked(self, position: int, end: int) -> None:
        """Record verified bytes as one range that grows as a reader advances; readers rarely need more."""
        if self._checked_from <= position <= self._checked_to:
            self._checked_to = max(self._checked_to, end)
        else:
            self._checked_from, self._checked_to = position, end
        if self._checked_to >= self._written_from:
            self._written_from = min(self._written_from, self._checked_from)

    def count_damage(self, end: int) -> None:
        """Damaged bytes up to `end` were acknowledged: the next batch is written behind them."""
        if end > self.size:
            self.size = self.next_position = end
            self.is_changed = True

    def add_damage(self, damage: Damage) -> bool:
        """Record damage; returns whether it was unknown before."""
        if damage in self.damage:
            return False
        self.damage = (*self.damage, damage)
        return True
