"""Consumers that read in disorder, and records that were written in disorder."""

from collections.abc import Iterator
from itertools import pairwise

from tests.checker.history import Assign, FinalRead, Outcome, Poll, Send
from tests.checker.planting.scene import Scene, plants
from tests.checker.report import Kind


def _neighbours(scene: Scene) -> Iterator[tuple[Poll, int]]:
    """Polls with the index of a record whose neighbours on both sides are of its partition."""
    for poll in scene.all(Poll):
        for index in range(1, len(poll.records) - 1):
            if len({partition for partition, _, _ in poll.records[index - 1 : index + 2]}) == 1:
                yield poll, index


@plants(Kind.POLL_SKIP)
def left_out_within_a_poll(scene: Scene) -> None:
    poll, index = scene.any(
        (poll, index)
        for poll, index in _neighbours(scene)
        if _is_for_all(scene, poll, index) and _is_for_all(scene, poll, index - 1)
    )
    del poll.records[index]


def _is_for_all(scene: Scene, poll: Poll, index: int) -> bool:
    """Whether the record is in the final reads."""
    partition, offset, value = poll.records[index]
    view = scene.log.views[partition]
    return offset >= view.start and all(value in read.values for read in view.final_reads)


@plants(Kind.POLL_SKIP)
def left_out_after_the_assignment(scene: Scene) -> None:
    poll, index = scene.any(_firsts(scene))
    del poll.records[index]


def _firsts(scene: Scene) -> Iterator[tuple[Poll, int]]:
    """Polls with the index of the first record after an assignment to its very offset, if another follows."""
    for operations in scene.log.consumers.values():
        for assign, poll in pairwise(operations):
            if not isinstance(assign, Assign) or not isinstance(poll, Poll):
                continue
            for index, ((partition, offset, _), (following, _, _)) in enumerate(pairwise(poll.records)):
                begins = assign.positions.get(partition) == offset
                if begins and partition == following and _is_for_all(scene, poll, index):
                    yield poll, index


@plants(Kind.NON_MONOTONIC_POLL, Kind.POLL_SKIP)
def back_within_a_poll(scene: Scene) -> None:
    poll, index = scene.any(_neighbours(scene))
    poll.records[index : index + 2] = reversed(poll.records[index : index + 2])


@plants(Kind.NON_MONOTONIC_POLL)
def back_across_polls(scene: Scene) -> None:
    poll = scene.any(poll for poll in scene.all(Poll) if poll.records)
    times = (poll.completed, poll.completed)
    again = Poll(poll.process, *times, poll.committed_only, list(poll.records))
    index = next(index for index, each in enumerate(scene.history) if each is poll)
    scene.history.insert(index + 1, again)


@plants(Kind.NON_MONOTONIC_POLL)
def final_read_in_disorder(scene: Scene) -> None:
    read = scene.any(read for read in scene.all(FinalRead) if len(read.records) > 1)
    read.records.insert(0, read.records.pop())


def _acknowledged(scene: Scene) -> list[list[Send]]:
    """By partition."""
    return [
        [send for send in view.sends if send.offset is not None and send.outcome is Outcome.OK]
        for view in scene.log.views.values()
    ]


@plants(Kind.NON_MONOTONIC_SEND, Kind.REAL_TIME_ORDER)
def pipelined_sends_in_disorder(scene: Scene) -> None:
    first, second = scene.any(
        (first, second)
        for sends in _acknowledged(scene)
        for first in sends
        for second in sends
        if first.process == second.process and first.invoked < second.invoked < first.completed
    )
    first.invoked, second.invoked = second.invoked, first.invoked


@plants(Kind.REAL_TIME_ORDER, Kind.NON_MONOTONIC_SEND)
def later_send_comes_first(scene: Scene) -> None:
    lower, higher = scene.any(
        (lower, higher)
        for sends in _acknowledged(scene)
        for lower in sends
        for higher in sends
        if lower.process != higher.process and lower.transaction is None
        if lower.offset is not None and higher.offset is not None and lower.offset < higher.offset
    )
    lower.invoked = higher.completed + 1
    lower.completed = lower.invoked + 1


@plants(Kind.REAL_TIME_ORDER)
def late_send_comes_before_what_was_read(scene: Scene) -> None:
    """Nobody was told of either send; a poll knew the higher one before the lower one was sent."""
    lower, known = scene.any(
        (send, view.known_since[higher])
        for view in scene.log.views.values()
        for send in view.sends
        if send.outcome is Outcome.UNKNOWN and send.transaction is None and send.value in view.offsets
        for higher in view.polled.values()
        if higher > view.offsets[send.value]
    )
    lower.invoked = known + 1
    lower.completed = max(lower.completed, known + 2)
