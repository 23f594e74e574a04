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
    def is_valid(self) -> bool:
        """Whether it certainly has not ended, by the broker's own clock."""
