"""Leases of records, and what their holders say about them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from posthouse.model.ids import MemberId


class Verdict(Enum):
    """What a member says of a record that it holds."""

    GONE = auto()
    """There is no such record."""
    ACCEPT = auto()
    RELEASE = auto()
    """Another member may try."""
    REJECT = auto()
    """It is not delivered again."""
    RENEW = auto()
    """It is still being worked on."""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """Of the records `first` to `last`: one verdict for all, or one for each."""

    first: int
    last: int
    verdicts: Sequence[Verdict]

    def __iter__(self) -> Iterator[tuple[int, Verdict]]:
        if len(self.verdicts) == 1:
            [verdict] = self.verdicts
            return ((offset, verdict) for offset in range(self.first, self.last + 1))
        return iter(zip(range(self.first, self.last + 1), self.verdicts, strict=True))


@dataclass(frozen=True, slots=True)
class LeasedRun:
    """Records `first` to `last`, leased together. `deliveries` counts this one too."""

    first: int
    last: int
    deliveries: int


class Lease:
    """One member's hold on records up to `last`, until `deadline`; told apart by identity.

    Those of its records that were settled or renewed since are not in it any more.
    """

    __slots__ = ("deadline", "first", "last", "member")

    def __init__(self, member: MemberId, first: int, last: int, deadline: float) -> None:
        self.member = member
        self.first = first
        self.last = last
        self.deadline = deadline

    def __lt__(self, other: "Lease") -> bool:
        return self.deadline < other.deadline


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTerms:
    """How records are leased."""

    lock_seconds: float
    max_deliveries: int
    max_leases: int
    """Of one partition."""
