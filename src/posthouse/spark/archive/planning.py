"""Planning of a run: the offsets to archive, in pieces. Arithmetic only."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from posthouse.client.cluster import TopicInfo
from posthouse.spark.archive.errors import ArchiveError
from posthouse.spark.archive.manifest import ArchiveState, Log, Range

SMALLEST_PIECE = 50_000
"""A smaller piece is not worth a task of its own."""


class LogBounds(NamedTuple):
    """The log start and the last stable offset of a partition."""

    start: int
    stable: int


class LostOffsets(NamedTuple):
    """Offsets that were deleted from the log before they were archived."""

    topic: str
    partition: int
    lost: Range


class PartitionSlice(NamedTuple):
    partition: int
    offsets: Range


@dataclass(frozen=True, slots=True)
class ArchiveTask:
    """One task: ranges of one topic, in the order of partition and offset."""

    topic: TopicInfo
    slices: tuple[PartitionSlice, ...]

    @property
    def size(self) -> int:
        return sum(each.offsets.end - each.offsets.start for each in self.slices)


@dataclass(frozen=True, slots=True)
class ArchiveBacklog:
    """Offsets that are not archived yet."""

    topic: TopicInfo
    waiting: Mapping[int, Range]
    """By partition; partitions without any are left out."""
    losses: Sequence[LostOffsets]

    @property
    def size(self) -> int:
        return sum(each.end - each.start for each in self.waiting.values())


def backlog(state: ArchiveState, topic: TopicInfo, bounds: Mapping[int, LogBounds]) -> ArchiveBacklog:
    waiting: dict[int, Range] = {}
    losses = []
    for partition, (start, stable) in sorted(bounds.items()):
        archived = state.end(Log(topic.id.hex(), partition))
        if archived is not None and archived > stable:
            raise ArchiveError(
                f"the archive has partition {partition} of topic {topic.name!r} up to offset {archived}, but "
                f"its log ends at {stable}, so it has lost records or is another one; archive it elsewhere"
            )
        if archived is not None and archived < start:
            losses.append(LostOffsets(topic.name, partition, Range(archived, start)))
        first = start if archived is None else max(start, archived)
        if first < stable:
            waiting[partition] = Range(first, stable)
    return ArchiveBacklog(topic, waiting, losses)


def steps(
    backlogs: Iterable[ArchiveBacklog], *, tasks: int, largest: int, smallest: int = SMALLEST_PIECE
) -> Iterator[list[ArchiveTask]]:
    """Pieces of at most `largest` offsets, about `tasks` of them per step; each step is one manifest version.

    Within a partition the steps are consecutive, so that the archived offsets are always one range.
    """
    left = [(each.topic, dict(each.waiting)) for each in backlogs]
    while any(waiting for _, waiting in left):
        total = sum(each.end - each.start for _, waiting in left for each in waiting.values())
        size = min(max(-(-total // tasks), smallest, 1), largest)
        step: list[ArchiveTask] = []
        for topic, waiting in left:
            step += _taken(topic, waiting, size, tasks - len(step))
        yield step


def _taken(topic: TopicInfo, waiting: dict[int, Range], size: int, most: int) -> list[ArchiveTask]:
    """Take up to `most` pieces of about `size` offsets from the waiting ranges."""
    pieces: list[ArchiveTask] = []
    slices: list[PartitionSlice] = []
    room = size
    for partition in sorted(waiting):
        while partition in waiting and len(pieces) < most:
            start, end = waiting[partition]
            cut = min(end, start + room)
            slices.append(PartitionSlice(partition, Range(start, cut)))
            room -= cut - start
            if cut == end:
                del waiting[partition]
            else:
                waiting[partition] = Range(cut, end)
            if not room:
                pieces.append(ArchiveTask(topic, tuple(slices)))
                slices, room = [], size
    if slices:
        pieces.append(ArchiveTask(topic, tuple(slices)))
    return pieces


def covered_by(pieces: Iterable[ArchiveTask]) -> dict[Log, Range]:
    """The range of each partition that the pieces of one step cover."""
    found: dict[Log, Range] = {}
    for piece in pieces:
        for partition, offsets in piece.slices:
            log = Log(piece.topic.id.hex(), partition)
            known = found.get(log, Range(offsets.start, offsets.start))
            found[log] = Range(min(known.start, offsets.start), max(known.end, offsets.end))
    return found
