"""Committed offsets that open transactions may still change."""

from collections.abc import Iterable


class PendingOffsets:
    """Counts by key: several transactions may be about to change the same offset."""

    def __init__(self) -> None:
        self._counts: dict[bytes, int] = {}

    def __contains__(self, key: bytes) -> bool:
        return key in self._counts

    def add(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            self._counts[key] = self._counts.get(key, 0) + 1

    def remove(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            left = self._counts[key] - 1
            if left:
                self._counts[key] = left
            else:
                del self._counts[key]
