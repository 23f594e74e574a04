"""What the storage needs of its broker, with and without the lease."""

from collections.abc import Callable
from typing import Protocol
from uuid import UUID


class MemberBroker(Protocol):
    """A broker that appends to logs without the lease."""

    @property
    def incarnation(self) -> UUID:
        """One start of one broker."""

    def count_commits(self, acknowledged: Callable[[], int]) -> None:
        """`acknowledged` is the sum of the numbers of the last acknowledged commits, on all paths."""

    def fenced(self, why: str) -> None:
        """The storage writes no more: another broker holds the lease, the database has lost commits, or the
        committer failed."""


class HeldLease(MemberBroker, Protocol):
    """Of the broker that coordinates."""

    @property
    def epoch(self) -> int:
        """Raised with every takeover."""

    @property
    def is_lost(self) -> bool:
        """Whether it is known to belong to another broker, or to none."""
