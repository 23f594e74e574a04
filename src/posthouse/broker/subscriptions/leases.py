"""Leases of records, and acknowledgements of their holders."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from posthouse.model.ids import MemberId

Notes: TypeAlias = Sequence[tuple[bytes, bytes]]
"""Headers of a dead letter, besides those that say where it comes from."""


class Verdict(Enum):
    """A member's verdict on a leased record."""

    GONE = auto()
    """The record does not exist."""
    ACCEPT = auto()
    RELEASE = auto()
    """The record is redelivered, perhaps to another member."""
    REJECT = auto()
    """It is not redelivered."""
    RENEW = auto()
    """The member still works on it: extend the lease."""


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """Acknowledgement of the records `first` to `last`: one verdict for all, or one for each."""

    first: int
    last: int
    verdicts: Sequence[Verdict]
    seconds: float | None = None
    """How long RENEW extends the lease; None: as long as a new one."""
    counts: bool = True
    """Whether the delivery counts when the record is ready again by this."""
    notes: Notes = ()
    """Headers that rejected records get when they are copied to the dead letters: why."""
    only_waits: bool = False
    """For RENEW: the member does not work on the record, which is to come again later."""

    def __iter__(self) -> Iterator[tuple[int, Verdict]]:
        if len(self.verdicts) == 1:
            [verdict] = self.verdicts
            return ((offset, verdict) for offset in range(self.first, self.last + 1))
        return iter(zip(range(self.first, self.last + 1), self.verdicts, strict=True))


def rejections(acknowledgements: Iterable[Acknowledgement]) -> dict[int, Notes]:
    """The rejected records, with what their dead letters are to say."""
    return {
        offset: each.notes
        for each in acknowledgements
        for offset, verdict in each
        if verdict is Verdict.REJECT
    }


@dataclass(frozen=True, slots=True)
class LeasedRun:
    """Records `first` to `last`, leased together. `deliveries` includes this one."""

    first: int
    last: int
    deliveries: int


@dataclass(frozen=True, slots=True, eq=False)
class RecordLease:
    """One member's lease on the records `first` to `last`; compared by identity.

    Records that were settled or renewed since are no longer part of it.
    """

    member: MemberId
    first: int
    last: int
    while_connected: bool = False
    """It is long because the member is connected; see `end_long_leases`."""
    counts: bool = True
    """Whether it counts as a delivery when it expires."""
    only_waits: bool = False
    """The member has given the record away: it does not count for the concurrency of the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTerms:
    """Limits and durations of leases."""

    lock_seconds: float
    max_deliveries: int
    has_dead_letters: bool = False
    """Records that were delivered so often are not settled, but stay ready until a fetch finds and copies
    them."""
    max_leases: int
    """Maximum number of leases per partition."""
