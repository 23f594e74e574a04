"""When leases end that have a deadline."""

import math
from heapq import heappop, heappush
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

    def clear(self) -> None:
        self._at.clear()
        self._heap.clear()
