"""When leases end that have a deadline."""

import math
from collections.abc import Container
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

H = TypeVar("H")


class Deadlines(Generic[H]):
    """By holder. A plain object: callers pass the time."""

    __slots__ = ("_at", "_heap", "_number")

    def __init__(self) -> None:
        self._at: dict[H, float] = {}
        self._heap: list[tuple[float, int, H]] = []
        """Also deadlines that were replaced or dropped since. The number keeps equal ones in order."""
        self._number = 0

    def __len__(self) -> int:
        """With those that were replaced or dropped, until they pass."""
        return len(self._heap)

    @property
    def next(self) -> float:
        """When to call `overdue` next; it may be too early."""
        return self._heap[0][0] if self._heap else math.inf

    def set(self, holder: H, deadline: float) -> None:
        """Replaces an earlier deadline of the holder."""
        self._at[holder] = deadline
        self._number += 1
        heappush(self._heap, (deadline, self._number, holder))

    def of(self, holder: H) -> float:
        """Infinity if it has none."""
        return self._at.get(holder, math.inf)

    def shorten(self, holder: H, deadline: float) -> None:
        """No-op if the holder has an earlier deadline, or none."""
        if self._at.get(holder, deadline) > deadline:
            self.set(holder, deadline)

    def drop(self, holder: H) -> None:
        """Its lease has ended in another way."""
        self._at.pop(holder, None)

    def overdue(self, now: float) -> list[H]:
        """The holders whose deadlines have passed. They have none from now on."""
        overdue: list[H] = []
        while self._heap and self._heap[0][0] <= now:
            deadline, _, holder = heappop(self._heap)
            if self._at.get(holder) == deadline:
                del self._at[holder]
                overdue.append(holder)
        return overdue

    def keep(self, holders: Container[H]) -> None:
        """Forget all other holders, and deadlines that were replaced."""
        self._at = {holder: at for holder, at in self._at.items() if holder in holders}
        self._heap = [each for each in self._heap if self._at.get(each[2]) == each[0]]
        heapify(self._heap)

    def clear(self) -> None:
        self._at.clear()
        self._heap.clear()
