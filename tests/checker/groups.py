"""The progress that groups commit, as a register for each group and partition."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from tests.checker.history import CommitOffset, CommittedOffset, Outcome, Partition
from tests.checker.log import Log
from tests.checker.report import Anomaly, Kind


@dataclass(slots=True)
class _Write:
    """A commit that was done, or may have been, at some time between `after` and `before`."""

    offset: int
    after: int
    before: float
    sure: bool


def check_groups(log: Log) -> Iterator[Anomaly]:
    registers: defaultdict[tuple[str, Partition], _Register] = defaultdict(_Register)
    for commit in log.commits:
        registers[commit.group, commit.partition].writes.extend(_writes(log, commit))
    for read in log.committed_offsets:
        registers[read.group, read.partition].reads.append(read)
    for (group, partition), register in registers.items():
        for read, later in register.stale_reads():
            text = f"{group} had {read.offset} in {partition[0]}-{partition[1]} after it surely had {later}"
            yield Anomaly(Kind.COMMITTED_OFFSET, text)


def _writes(log: Log, commit: CommitOffset) -> Iterator[_Write]:
    """A commit outside of a transaction is done between its request and its answer. One inside is done with
    the transaction. Without an answer it may be done at any later time."""
    if commit.outcome is Outcome.FAILED:
        return
    ok = commit.outcome is Outcome.OK
    if commit.transaction is None:
        yield _Write(commit.offset, commit.invoked, commit.completed if ok else inf, ok)
        return
    for end in log.transactions[commit.transaction].commits:
        sure = ok and end.outcome is Outcome.OK
        yield _Write(commit.offset, end.invoked, end.completed if sure else inf, sure)


class _Register:
    """What was read is what some commit left that was not surely overwritten before the read began.

    A commit is surely overwritten when another value was surely there later: one that was committed, or read,
    by a request that began after the commit was over and ended before the read began. What a group had before
    the history counts as committed before everything. All commits of a group must be in the history.
    """

    def __init__(self) -> None:
        self.writes: list[_Write] = []
        self.reads: list[CommittedOffset] = []

    def stale_reads(self) -> Iterator[tuple[CommittedOffset, int | None]]:
        """Reads, each with a value that had surely replaced what it returned."""
        commits = _Commits(self.writes)
        sightings: list[tuple[float, int, int | None]] = [
            *((write.before, write.after, write.offset) for write in self.writes if write.sure),
            *((read.completed, read.invoked, read.offset) for read in self.reads),
        ]
        sightings.sort(key=lambda sighting: sighting[0])
        latest = _LatestTwo()
        index = 0
        for read in sorted(self.reads, key=lambda read: read.invoked):
            while sightings[index][0] < read.invoked:
                latest.add(*sightings[index][1:])
                index += 1
            since, value = latest.other_than(read.offset)
            if since > commits.last_chance(read):
                yield read, value


class _Commits:
    """For each offset, its commits by the time at which they began, and how late each or one before it may
    have been done."""

    def __init__(self, writes: list[_Write]) -> None:
        self._began: defaultdict[int | None, list[int]] = defaultdict(list)
        self._done: defaultdict[int | None, list[float]] = defaultdict(list)
        for write in sorted(writes, key=lambda write: write.after):
            done = self._done[write.offset]
            self._began[write.offset].append(write.after)
            done.append(max(write.before, done[-1]) if done else write.before)

    def last_chance(self, read: CommittedOffset) -> float:
        """The latest time at which a commit was done that this read can have seen."""
        count = bisect_left(self._began[read.offset], read.completed)
        return self._done[read.offset][count - 1] if count else -inf


class _LatestTwo:
    """The value that was surely there latest, and the latest one that differs from it, each with a time after
    which it was there."""

    def __init__(self) -> None:
        self._first: tuple[float, int | None] = (-inf, None)
        self._second: tuple[float, int | None] = (-inf, None)

    def add(self, since: int, value: int | None) -> None:
        if since > self._first[0]:
            if value != self._first[1]:
                self._second = self._first
            self._first = (since, value)
        elif value != self._first[1] and since > self._second[0]:
            self._second = (since, value)

    def other_than(self, value: int | None) -> tuple[float, int | None]:
        return self._second if value == self._first[1] else self._first
