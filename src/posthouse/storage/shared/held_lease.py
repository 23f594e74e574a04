"""What the storage needs of its broker."""

from collections.abc import Callable
from typing import Protocol
from uuid import UUID

from posthouse.model.scopes import Scope


class HeldLease(Protocol):
    """The lease of the broker, under which it commits."""

    @property
    def incarnation(self) -> UUID:
        """One start of one broker."""

    @property
    def epoch(self) -> int:
        """Raised with every lease."""

    @property
    def is_lost(self) -> bool:
        """Whether the broker is known to be fenced, or has released the lease."""

    def holds(self, scope: Scope) -> bool:
        """Whether the broker may commit state and logs of the scope."""

    def count_commits(self, acknowledged: Callable[[], int]) -> None:
        """`acknowledged` is the sum of the numbers of the last acknowledged commits, on all paths."""

    def fenced(self, why: str) -> None:
        """The storage writes no more: another broker has taken over, the database has lost commits, or the
        committer failed."""
