"""A log that keeps every promise, unless told to lose: partitions, transactions, groups.

Offsets are places in a list.
"""

from dataclasses import dataclass, field
from random import Random

from tests.checker.history import Partition


@dataclass(slots=True)
class Entry:
    value: int | None
    """None is the mark of a transaction's end."""
    transaction: int | None


@dataclass(slots=True)
class Track:
    """One partition."""

    entries: list[Entry] = field(default_factory=list)
    start: int = 0
    open: dict[int, int] = field(default_factory=dict)
    """The first offset of each open transaction."""

    @property
    def end(self) -> int:
        return len(self.entries)

    @property
    def stable(self) -> int:
        return min(self.open.values(), default=self.end)


class PerfectLog:
    def __init__(self, partitions: list[Partition]) -> None:
        self.tracks = {partition: Track() for partition in partitions}
        self.groups: dict[tuple[str, Partition], int] = {}
        self.ended: dict[int, bool] = {}
        """Transactions that have ended: committed or not."""
        self._pending: dict[int, list[tuple[str, Partition, int]]] = {}

    def append(self, partition: Partition, value: int, transaction: int | None) -> int:
        track = self.tracks[partition]
        if transaction is not None:
            assert transaction not in self.ended
            track.open.setdefault(transaction, track.end)
        track.entries.append(Entry(value, transaction))
        return track.end - 1

    def end(self, transaction: int, commit: bool) -> None:
        """What ended before stays as it is."""
        if transaction in self.ended:
            return
        self.ended[transaction] = commit
        for track in self.tracks.values():
            if track.open.pop(transaction, None) is not None:
                track.entries.append(Entry(None, transaction))
        for group, partition, offset in self._pending.pop(transaction, ()):
            if commit:
                self.commit(group, partition, offset, None)

    def commit(self, group: str, partition: Partition, offset: int, transaction: int | None) -> None:
        if transaction is None:
            self.groups[group, partition] = offset
        elif transaction not in self.ended:
            self._pending.setdefault(transaction, []).append((group, partition, offset))

    def delete(self, partition: Partition, before: int) -> None:
        track = self.tracks[partition]
        track.start = max(track.start, min(before, track.stable))

    def lose(self, chance: Random) -> None:
        """What an unsafe log does at a crash: it forgets ends of partitions, and the progress of groups."""
        for track in self.tracks.values():
            marks = (place for place in reversed(range(track.end)) if track.entries[place].value is None)
            end = max(track.end - chance.randrange(20), next(marks, -1) + 1, track.start)
            del track.entries[end:]
            track.open = {each: first for each, first in track.open.items() if first < end}
        self.groups = {key: offset for key, offset in self.groups.items() if chance.random() < 0.5}

    def read(
        self, partition: Partition, offset: int, end: int, committed_only: bool
    ) -> list[tuple[int, int]]:
        found = []
        track = self.tracks[partition]
        for place in range(max(offset, track.start), min(end, track.stable if committed_only else track.end)):
            entry = track.entries[place]
            if entry.value is None:
                continue
            if committed_only and entry.transaction is not None and not self.ended[entry.transaction]:
                continue
            found.append((place, entry.value))
        return found
