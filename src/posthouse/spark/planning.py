"""Planning of a read: offsets and pieces. Arithmetic only."""

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
        """Pieces of about equal size; none is empty."""
        count = min(count, self.size)
        cuts = [self.first + self.size * number // count for number in range(count + 1)]
        return [replace(self, first=first, end=end) for first, end in pairwise(cuts)]


def ranges_between(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> list[OffsetRange]:
    """The ranges between two sets of offsets, without empty ones."""
    found = [OffsetRange(place, start[place], end[place]) for place in sorted(end) if place in start]
    return [each for each in found if each.size > 0]


def split(
    ranges: Iterable[OffsetRange], *, at_least: int = 0, largest: int | None = None
) -> list[OffsetRange]:
    """Split into pieces of at most `largest` offsets, and into about `at_least` pieces if there are fewer."""
    pieces = [piece for each in ranges for piece in each.pieces(_parts(each.size, largest))]
    total = sum(piece.size for piece in pieces)
    if len(pieces) >= at_least or not total:
        return pieces
    return [part for piece in pieces for part in piece.pieces(max(1, round(piece.size * at_least / total)))]


def grouped(ranges: Iterable[OffsetRange], most: int | None) -> list[list[OffsetRange]]:
    """Rising ranges of one partition in groups of at most `most` offsets. Larger ranges are split."""
    groups: list[list[OffsetRange]] = []
    size = 0
    for each in split(ranges, largest=most):
        if not groups or (most is not None and size + each.size > most):
            groups.append([])
            size = 0
        groups[-1].append(each)
        size += each.size
    return groups


def _parts(size: int, largest: int | None) -> int:
    return 1 if largest is None else -(-size // largest)


def limited(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], most: int) -> Offsets:
    """End offsets for a read of about `most` offsets: every partition in proportion to its backlog.

    Each partition with a backlog advances by at least one, so that a small one does not starve behind large
    ones.
    """
    waiting = {each.place: each.size for each in ranges_between(start, end)}
    total = sum(waiting.values())
    if total <= most:
        return dict(end)
    return {
        place: start[place] + max(1, waiting[place] * most // total) if place in waiting else offset
        for place, offset in end.items()
    }
