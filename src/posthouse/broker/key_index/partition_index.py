"""What the index knows of one partition: files, entries that are being written, and the newest ones.

    log      start ────────────────────────────────────────────────────────── end
    index          file │ file │   gap   │ file │ sealed │ recent │   tail

The gap is a damaged file, or a batch that cannot be indexed. Gaps and the tail are read by searches.
"""

from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from posthouse.broker.key_index.entries import MOST_DELTA, Entries
from posthouse.broker.key_index.file_format import IndexHeader
from posthouse.model.ids import PartitionId


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of offsets, and what is known of it: None where it has to be read."""

    first: int
    end: int
    known: IndexHeader | Entries | None


@dataclass(frozen=True, slots=True)
class Place:
    """Offsets where a record may be. Others have none of the name."""

    first: int
    end: int
    is_exact: bool
    """One offset, of an entry with the hash of the name."""


class Places(Protocol):
    """Where records of one query may be."""

    def __call__(
        self, partition: PartitionId, start: int, end: int, *, newest_first: bool = False
    ) -> AsyncGenerator[Place, None]:
        """From `start` to before `end`, in the order of offsets; with `newest_first` the other way round.
        Raises UnknownPartition and Unavailable."""


@dataclass(slots=True)
class PartitionIndex:
    """Owned by the event loop."""

    id: PartitionId
    files: list[IndexHeader] = field(default_factory=list)
    """In the order of offsets, without overlaps."""
    sealed: list[Entries] = field(default_factory=list)
    """Full, until they are in files."""
    recent: Entries | None = None
    skipped: list[tuple[int, int]] = field(default_factory=list)
    """Ranges that cannot be indexed."""
    is_proven: bool = False
    """Whether the newest file was compared with the log since the start."""
    largest: int = 0
    """Bytes of the partition, when it had most of them."""
    paused_until: float = 0.0
    """Its log cannot be read now."""

    def pieces(self, start: int, end: int) -> list[Piece]:
        """All offsets from `start` to before `end`, in their order."""
        found: list[Piece] = []
        position = start
        for each in self._known():
            first, until = max(each.first, position), min(each.end, end)
            if first >= until:
                continue
            if first > position:
                found.append(Piece(position, first, None))
            found.append(Piece(first, until, each))
            position = until
        if position < end:
            found.append(Piece(position, end, None))
        return found

    def next_gap(self, start: int, end: int) -> tuple[int, int] | None:
        """The first range that is to be indexed."""
        for piece in self.pieces(start, end):
            if piece.known is None:
                for range_ in _without(piece.first, piece.end, self.skipped):
                    return range_
        return None

    def _known(self) -> Sequence[IndexHeader | Entries]:
        recent = [] if self.recent is None else [self.recent]
        # Mostly in order already, so this is one pass.
        return sorted([*self.files, *self.sealed, *recent], key=lambda each: each.first)

    def add(self, entries: Entries) -> None:
        """What was made of a gap."""
        recent = self.recent
        if recent is not None and recent.end == entries.first and entries.end - recent.first <= MOST_DELTA:
            recent.extend(entries)
            return
        self.seal()
        self.recent = entries

    def seal(self) -> None:
        """The newest entries are to go into a file."""
        if self.recent is not None:
            self.sealed.append(self.recent)
            self.recent = None

    def written(self, entries: Entries, header: IndexHeader, replaced: Sequence[IndexHeader]) -> None:
        """Sealed entries are in a file, and those of files that it replaces."""
        self.sealed = [each for each in self.sealed if each is not entries]
        self.files = [each for each in self.files if each not in replaced]
        self.files.append(header)
        self.files.sort(key=lambda each: each.first)

    def trim(self, start: int) -> list[IndexHeader]:
        """The log starts there now. Returns the files that are no longer needed."""
        gone = [each for each in self.files if each.end <= start]
        if gone:
            self.files = [each for each in self.files if each.end > start]
        if self.recent is not None and self.recent.end <= start:
            self.recent = None
        self.sealed = [each for each in self.sealed if each.end > start]
        self.skipped = [each for each in self.skipped if each[1] > start]
        return gone

    def drop(self, header: IndexHeader) -> None:
        self.files = [each for each in self.files if each is not header]

    def drop_all(self) -> list[IndexHeader]:
        gone, self.files = self.files, []
        self.sealed, self.recent, self.skipped = [], None, []
        return gone

    def outgrown(self, size: int) -> list[IndexHeader]:
        """All files, once compaction has removed half of the log, which has `size` bytes now: most of their
        records are gone."""
        if size * 2 >= self.largest:
            self.largest = max(self.largest, size)
            return []
        self.largest = size
        return self.drop_all()

    def joinable(self, entries: Entries, most: int) -> list[IndexHeader]:
        """Files before these entries that go into one with them, of at most so many entries: none that is
        more than twice as large, so an entry is written again a few times only."""
        joined: list[IndexHeader] = []
        first, count = entries.first, len(entries)
        for header in reversed(self.files):
            if header.end != first or header.count > 2 * count:
                break
            if count + header.count > most or entries.end - header.first > MOST_DELTA:
                break
            joined.insert(0, header)
            first, count = header.first, count + header.count
        return joined

    @property
    def entries_in_memory(self) -> int:
        return sum(map(len, self.sealed)) + (0 if self.recent is None else len(self.recent))


def _without(first: int, end: int, skipped: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for skip_first, skip_end in sorted(skipped):
        if skip_end <= first:
            continue
        if skip_first >= end:
            break
        if skip_first > first:
            yield first, skip_first
        first = max(first, skip_end)
    if first < end:
        yield first, end
