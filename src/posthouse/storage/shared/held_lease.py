"""What the storage needs of the lease that its broker holds."""

from collections.abc import Callable
from typing import Protocol
from uuid import UUID


class HeldLease(Protocol):
    @property
    def incarnation(self) -> UUID:
        """The holder: one start of one broker."""

    @property
    def epoch(self) -> int:
        """Raised with every takeover."""

    @property
    def is_lost(self) -> bool:
        """Whether it is known to belong to another broker, or to none."""

    def count_commits(self, acknowledged: Callable[[], int]) -> None:
        """`acknowledged` is the sum of the numbers of the last acknowledged commits, on all paths."""

    def fenced(self, why: str) -> None:
        """The storage writes no more: another broker holds the lease, the database has lost commits, or the
        committer failed."""
