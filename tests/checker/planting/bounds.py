"""Watermarks and committed offsets that go back."""

from collections.abc import Iterator

from tests.checker.history import (
    CommitOffset,
    CommittedOffset,
    End,
    FinalRead,
    Operation,
    Outcome,
    Watermarks,
)
from tests.checker.planting.scene import FAR, Scene, plants
from tests.checker.report import Kind


def _in_turn(scene: Scene) -> Iterator[tuple[Watermarks, Watermarks]]:
    """Answers for one partition, the second asked for after the first was there."""
    for answers in scene.log.watermarks.values():
        for first in answers:
            yield from ((first, second) for second in answers if first.completed < second.invoked)


@plants(Kind.HIGH_WATERMARK)
def high_watermark_back(scene: Scene) -> None:
    first, second = scene.any(_in_turn(scene))
    second.end = first.end - 1


@plants(Kind.STABLE_OFFSET)
def stable_offset_back(scene: Scene) -> None:
    first, second = scene.any(_in_turn(scene))
    second.stable = first.stable - 1


@plants(Kind.LOG_START)
def log_start_back(scene: Scene) -> None:
    first, second = scene.any(pair for pair in _in_turn(scene) if pair[0].start > 0)
    second.start = first.start - 1


def _final(scene: Scene, committed_only: bool) -> tuple[FinalRead, Watermarks]:
    return scene.any(
        (read, answer)
        for read in scene.all(FinalRead)
        if read.committed_only == committed_only
        for answer in scene.log.watermarks[read.partition]
    )


@plants(Kind.HIGH_WATERMARK)
def final_read_ends_early(scene: Scene) -> None:
    read, answer = _final(scene, False)
    read.end = answer.end - 1


@plants(Kind.STABLE_OFFSET, Kind.UNSEEN, Kind.LOST_WRITE, Kind.TORN_TRANSACTION)
def final_committed_read_ends_early(scene: Scene) -> None:
    read, answer = _final(scene, True)
    read.end = answer.stable - 1


@plants(Kind.LOG_START)
def final_read_begins_early(scene: Scene) -> None:
    read, answer = scene.any(
        (read, answer)
        for read in scene.all(FinalRead)
        for answer in scene.log.watermarks[read.partition]
        if answer.start > 0
    )
    read.start = answer.start - 1


@plants(Kind.COMMITTED_OFFSET)
def commit_forgotten(scene: Scene) -> None:
    read = scene.any(
        read
        for read in scene.all(CommittedOffset)
        for commit in scene.log.commits
        if (commit.group, commit.partition) == (read.group, read.partition)
        if commit.outcome is Outcome.OK and commit.transaction is None and commit.completed < read.invoked
    )
    read.offset = None


def _at_the_end(scene: Scene, *operations: tuple[str, int, int, int]) -> None:
    """Commits and reads of an offset from one time to another, after all else."""
    group, partition = "late", ("orders", 0)
    for name, since, until, offset in operations:
        times = (scene.end + since, scene.end + until)
        operation: Operation = CommittedOffset(1, *times, group, partition, offset)
        if name == "commit":
            operation = CommitOffset(1, *times, group, partition, offset, Outcome.OK)
        scene.history.append(operation)


@plants(Kind.COMMITTED_OFFSET)
def older_commit_is_back(scene: Scene) -> None:
    _at_the_end(scene, ("commit", 1, 2, 10), ("commit", 3, 4, 20), ("read", 5, 6, 10))


@plants(Kind.COMMITTED_OFFSET)
def reads_disagree_on_which_commit_was_last(scene: Scene) -> None:
    """The commits overlap, so either may be the last, but not first one and then the other."""
    _at_the_end(scene, ("commit", 1, 4, 10), ("commit", 2, 3, 20), ("read", 5, 6, 20), ("read", 7, 8, 10))


@plants(Kind.COMMITTED_OFFSET)
def commit_of_a_transaction_is_forgotten(scene: Scene) -> None:
    _at_the_end(scene, ("commit", 1, 2, 10))
    late, group, partition = scene.end, "late", ("orders", 0)
    scene.history += [
        CommitOffset(1, late + 3, late + 4, group, partition, 20, Outcome.OK, FAR),
        CommittedOffset(2, late + 4, late + 5, group, partition, 10),
        End(1, late + 5, late + 6, FAR, True, Outcome.OK),
        CommittedOffset(2, late + 7, late + 8, group, partition, 10),
    ]
