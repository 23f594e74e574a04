"""A good history in which something is about to go wrong, and the register of ways to do that."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from tests.checker.history import FinalRead, History, Send
from tests.checker.log import Log, View
from tests.checker.queues import Queues
from tests.checker.report import Kind

Found = TypeVar("Found")
Operation = TypeVar("Operation")
FAR = 1_000_000
"""An offset, and a value, beyond all that a small history has."""


class NoOpportunity(LookupError):
    """This history has nothing that could go wrong in this way; another has."""


class Scene:
    def __init__(self, history: History, seed: int) -> None:
        self.history = history
        self.chance = Random(seed)
        self.log = Log(history)
        self.queues = Queues(history)
        self.end = 1 + max(getattr(each, "completed", getattr(each, "at", 0)) for each in history)

    def all(self, kind: type[Operation]) -> list[Operation]:
        return [each for each in self.history if isinstance(each, kind)]

    def any(self, found: Iterable[Found]) -> Found:
        everything = list(found)
        if not everything:
            raise NoOpportunity
        return self.chance.choice(everything)

    def final_reads(self, view: View) -> list[FinalRead]:
        return [read for read in self.all(FinalRead) if read.partition == view.partition]

    def any_view(self) -> View:
        return self.any(view for view in self.log.views.values() if view.final_reads)

    def acknowledged(self, view: View) -> list[Send]:
        """Sends outside of transactions that are in all final reads, and not as the last."""
        return [
            send
            for send in view.sends
            if send.offset is not None and send.transaction is None and view.final_reads
            if all(send.value in read.values and send.offset < read.last for read in view.final_reads)
        ]

    def forget(self, view: View, values: set[int], committed_only: tuple[bool, ...] = (True, False)) -> None:
        """Take values out of the final reads of a partition."""
        for read in self.final_reads(view):
            if read.committed_only in committed_only:
                read.records = [record for record in read.records if record[1] not in values]


@dataclass(frozen=True, slots=True)
class Planting:
    kind: Kind
    related: frozenset[Kind]
    """What else may be wrong then, as one thing leads to another."""
    plant: Callable[[Scene], None]

    def __str__(self) -> str:
        return f"{self.kind}: {self.plant.__name__}"


PLANTINGS: list[Planting] = []


def plants(kind: Kind, *related: Kind) -> Callable[[Callable[[Scene], None]], Callable[[Scene], None]]:
    def register(plant: Callable[[Scene], None]) -> Callable[[Scene], None]:
        PLANTINGS.append(Planting(kind, frozenset(related), plant))
        return plant

    return register
