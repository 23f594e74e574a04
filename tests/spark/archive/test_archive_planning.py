"""Which offsets a run takes, and in which pieces."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posthouse.spark.archive.errors import ArchiveError
from posthouse.spark.archive.manifest import ArchiveState, Change, Log, Range
from posthouse.spark.archive.planning import (
    ArchiveBacklog,
    LogBounds,
    LostOffsets,
    backlog,
    covered_by,
    steps,
)
from tests.spark.archive.records import topic

TOPIC = topic(partitions=4)
ID = TOPIC.id.hex()


def archived(**ends: int) -> ArchiveState:
    state = ArchiveState()
    cover = {Log(ID, int(name[1:])): Range(0, end) for name, end in ends.items()}
    state.apply(Change(topics={ID: "orders"}, cover=cover), 0)
    return state


def test_a_run_takes_what_is_not_archived() -> None:
    bounds = {0: LogBounds(0, 10), 1: LogBounds(3, 10), 2: LogBounds(5, 5), 3: LogBounds(4, 9)}
    found = backlog(archived(p0=10, p1=7), TOPIC, bounds)
    assert found.waiting == {1: Range(7, 10), 3: Range(4, 9)}
    assert (found.losses, found.size) == ([], 8)


def test_what_the_log_lost_before_is_said_and_not_taken() -> None:
    found = backlog(archived(p0=10), TOPIC, {0: LogBounds(12, 20)})
    assert found.waiting == {0: Range(12, 20)}
    assert found.losses == [LostOffsets("orders", 0, Range(10, 12))]


def test_a_log_that_is_shorter_than_its_archive_is_another_one() -> None:
    with pytest.raises(ArchiveError, match="up to offset 10, but its log ends at 8"):
        backlog(archived(p0=10), TOPIC, {0: LogBounds(0, 8)})


def test_a_topic_that_was_created_again_is_archived_from_its_beginning() -> None:
    again = topic(id=2)
    assert backlog(archived(p0=10), again, {0: LogBounds(0, 8)}).waiting == {0: Range(0, 8)}


def test_small_partitions_share_a_task() -> None:
    waiting = {index: Range(0, 10) for index in range(4)}
    [[piece]] = steps([ArchiveBacklog(TOPIC, waiting, ())], tasks=4, largest=1000, smallest=50)
    assert piece.slices == tuple((index, Range(0, 10)) for index in range(4))


@settings(deadline=None)
@given(
    st.lists(
        st.dictionaries(st.integers(0, 3), st.tuples(st.integers(0, 9), st.integers(1, 90)), max_size=4),
        max_size=3,
    ),
    st.integers(1, 5),
    st.integers(5, 40),
    st.integers(1, 60),
)
def test_every_offset_is_taken_once_and_in_order(
    sizes: list[dict[int, tuple[int, int]]], tasks: int, largest: int, smallest: int
) -> None:
    backlogs = [
        ArchiveBacklog(
            topic(id=number), {index: Range(at, at + size) for index, (at, size) in each.items()}, ()
        )
        for number, each in enumerate(sizes)
    ]
    ends = {
        Log(each.topic.id.hex(), index): waiting.start
        for each in backlogs
        for index, waiting in each.waiting.items()
    }
    for pieces in steps(backlogs, tasks=tasks, largest=largest, smallest=smallest):
        assert 1 <= len(pieces) <= tasks
        for piece in pieces:
            assert 1 <= piece.size <= largest
            assert list(piece.slices) == sorted(piece.slices)
        for log, covered in covered_by(pieces).items():
            assert covered.start == ends[log], "each step goes on where the one before ended"
            ends[log] = covered.end
    assert ends == {
        Log(each.topic.id.hex(), index): waiting.end
        for each in backlogs
        for index, waiting in each.waiting.items()
    }
