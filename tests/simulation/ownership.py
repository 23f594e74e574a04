"""Who was told to read what, and whether a group's promises are kept:

- In one generation a partition belongs to one member.
- When a member has heard of a new generation, nobody commits in an older one any more.
- What a group's members commit never goes back: who takes a partition over begins where it was left.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tests.checker.history import Partition
from tests.checker.report import Anomaly, Kind
from tests.simulation.group_client import Joined

Generation = tuple[int, str]
"""Its number and its leader: a group that a restart has forgotten counts from the beginning."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One that was acknowledged."""

    member: Joined
    partition: Partition
    offset: int
    invoked: int
    completed: int


@dataclass(slots=True)
class _Joins:
    first_heard: int
    last_asked: int


class Ownership:
    def __init__(self) -> None:
        self._joins: dict[Generation, _Joins] = {}
        self._owners: defaultdict[tuple[Generation, Partition], set[str]] = defaultdict(set)
        self.commits: list[Commit] = []

    def joined(self, joined: Joined, invoked: int, completed: int) -> None:
        joins = self._joins.setdefault(_generation(joined), _Joins(completed, invoked))
        joins.last_asked = max(joins.last_asked, invoked)

    def owns(self, joined: Joined, partitions: list[Partition]) -> None:
        for partition in partitions:
            self._owners[_generation(joined), partition].add(joined.member)

    def anomalies(self) -> Iterator[Anomaly]:
        yield from self._shared()
        yield from self._stale()
        yield from self._back()

    def _shared(self) -> Iterator[Anomaly]:
        for ((number, _), partition), members in self._owners.items():
            if len(members) > 1:
                text = f"{partition} belongs to {len(members)} members of generation {number}"
                yield Anomaly(Kind.COMMITTED_OFFSET, text)

    def _stale(self) -> Iterator[Anomaly]:
        """A generation is later than another for sure if somebody asked for it after the other was known."""
        for commit in self.commits:
            own = _generation(commit.member)
            since = self._joins[own].first_heard
            for other, joins in self._joins.items():
                if other != own and joins.last_asked > since and joins.first_heard < commit.invoked:
                    text = f"{commit} was taken after {other} had begun"
                    yield Anomaly(Kind.COMMITTED_OFFSET, text)

    def _back(self) -> Iterator[Anomaly]:
        by_partition: defaultdict[Partition, list[Commit]] = defaultdict(list)
        for commit in self.commits:
            by_partition[commit.partition].append(commit)
        for commits in by_partition.values():
            done = sorted(commits, key=lambda each: each.completed)
            highest, index = None, 0
            for commit in sorted(commits, key=lambda each: each.invoked):
                while done[index].completed < commit.invoked:
                    if highest is None or done[index].offset > highest.offset:
                        highest = done[index]
                    index += 1
                if highest is not None and highest.offset > commit.offset:
                    yield Anomaly(Kind.COMMITTED_OFFSET, f"{commit} was taken after {highest}")


def _generation(joined: Joined) -> Generation:
    return joined.generation, joined.leader
