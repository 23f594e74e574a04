"""Which offsets are read, in how many pieces. Arithmetic only."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from posthouse.client.topic_partitions import TopicPartition
from posthouse.spark.offsets import Offsets


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of one partition from `first` to before `end`."""

    place: TopicPartition
    first: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.first

    def pieces(self, count: int) -> "list[OffsetRange]":
        """As equal as can be; none is empty."""
        count = min(count, self.size)
        cuts = [self.first + self.size * number // count for number in range(count + 1)]
        return [replace(self, first=first, end=end) for first, end in pairwise(cuts)]


def ranges_between(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> list[OffsetRange]:
    """What lies between two sets of offsets, without partitions that have nothing."""
    found = [OffsetRange(place, start[place], end[place]) for place in sorted(end) if place in start]
    return [each for each in found if each.size > 0]


def split(
    ranges: Iterable[OffsetRange], *, at_least: int = 0, largest: int | None = None
) -> list[OffsetRange]:
    """Cut into pieces of `largest` offsets at most, and into about `at_least` pieces if there are fewer."""
    pieces = [piece for each in ranges for piece in each.pieces(_parts(each.size, largest))]
    total = sum(piece.size for piece in pieces)
    if len(pieces) >= at_least or not total:
        return pieces
    return [part for piece in pieces for part in piece.pieces(max(1, round(piece.size * at_least / total)))]


def _parts(size: int, largest: int | None) -> int:
    return 1 if largest is None else -(-size // largest)


def limited(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], most: int) -> Offsets:
    """How far to go so that about `most` offsets are read: every partition in proportion to what it has.

    Each that has something goes on by one at least, or a small one would wait behind large ones for ever.
    """
    waiting = {each.place: each.size for each in ranges_between(start, end)}
    total = sum(waiting.values())
    if total <= most:
        return dict(end)
    return {
        place: start[place] + max(1, waiting[place] * most // total) if place in waiting else offset
        for place, offset in end.items()
    }
