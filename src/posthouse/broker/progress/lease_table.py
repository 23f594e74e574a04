"""Leases on the positions of one log, for queues and for subscriptions.

A position is ready, leased or settled. `Progress` knows which positions are settled, and is stored. A lease
table knows which are leased, and to whom; it is not stored: after a restart, leased positions are ready.
"""

from typing import Generic, TypeVar

from posthouse.broker.progress.progress import Progress

H = TypeVar("H")


class LeaseTable(Generic[H]):
    """A holder is compared by identity: one that has lost its lease cannot settle a position that another
    one holds by now.

    Owned by the event loop. Invariant: a position has at most one holder, and a leased one is not settled.
    """

    __slots__ = ("_progress", "holders")

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.holders: dict[int, H] = {}
        """By position. Owners lease by adding to it: a call for each message would be slower."""

    def settle(self, position: int, holder: H) -> bool:
        """End the lease and settle the position. False where the holder has lost its lease."""
        holders = self.holders
        if holders.get(position) is not holder:
            return False
        del holders[position]
        self._progress.settle(position)
        return True

    def unsettle(self, position: int, holder: H) -> None:
        """Undo `settle`: what had to be stored with it failed."""
        self._progress.unsettle(position)
        self.holders[position] = holder

    def settle_range(self, first: int, end: int) -> None:
        """End the leases on all positions from `first` to before `end`, and settle them."""
        for position in range(first, end):
            del self.holders[position]
        self._progress.settle_range(first, end)

    def settle_unleased(self, first: int, end: int) -> None:
        """Settle all positions from `first` to before `end` that are not leased."""
        if first >= end:
            return
        for position in sorted(position for position in self.holders if first <= position < end):
            self._progress.settle_range(first, position)
            first = position + 1
        self._progress.settle_range(first, end)

    def release(self, position: int, holder: H) -> bool:
        """End the lease: the position is ready. False where the holder has lost its lease."""
        if self.holders.get(position) is not holder:
            return False
        del self.holders[position]
        return True

    def drop_below(self, start: int) -> None:
        """End the leases on all positions below `start`: their records are gone."""
        for position in [position for position in self.holders if position < start]:
            del self.holders[position]
