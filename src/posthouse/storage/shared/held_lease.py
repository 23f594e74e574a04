"""What the storage needs of the lease that its broker holds."""

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
        """Whether it is known to belong to another broker, or to nobody."""

    def fenced(self) -> None:
        """A commit was refused because another broker holds the lease."""
