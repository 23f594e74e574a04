"""The window: keys of the entries that are due next, over all buckets, up to a limit."""

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

from posthouse.broker.schedule.keys import log_of


class ScheduleWindow:
    """A heap with a limit. Buckets keep their late entries, which count here."""

    def __init__(self, limit: int) -> None:
        if limit < 2:
            raise ValueError("a window has room for two entries at least")
        self.limit = limit
        self.late = 0
        self._heap: list[bytes] = []

    def __len__(self) -> int:
        return len(self._heap) + self.late

    @property
    def is_full(self) -> bool:
        return len(self) >= self.limit

    @property
    def first(self) -> bytes | None:
        return self._heap[0] if self._heap else None

    def add(self, key: bytes) -> Sequence[bytes]:
        """Add a key; returns the keys that were evicted: the later half, so that this happens rarely."""
        if not self.is_full:
            heappush(self._heap, key)
            return ()
        self._heap.append(key)
        return self._keep((self.limit - self.late + 1) // 2)

    def make_room(self) -> Sequence[bytes]:
        """Evict the later half; returns the evicted keys."""
        return self._keep(len(self._heap) // 2) if self.is_full else ()

    def _keep(self, count: int) -> Sequence[bytes]:
        self._heap.sort()
        dropped = self._heap[count:]
        del self._heap[count:]
        return dropped

    def pop(self) -> bytes:
        return heappop(self._heap)

    def upcoming(self, bound: bytes) -> list[bytes]:
        """The keys before the bound, in order. They stay in the window."""
        return sorted(key for key in self._heap if key < bound)

    def put_back(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            heappush(self._heap, key)

    def forget(self, log: int, bound: bytes) -> int:
        """Remove the keys of a log from `bound` on; returns their number."""
        before = len(self._heap)
        self._heap = [key for key in self._heap if key < bound or log_of(key) != log]
        heapify(self._heap)
        return before - len(self._heap)
