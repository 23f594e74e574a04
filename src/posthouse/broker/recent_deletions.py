"""The names of topics that were deleted a moment ago: clients that have not noticed yet ask for them again.

A producer, or an admin client that looks whether a topic is gone, lets the broker create what it asks for.
Kafka says once that there is no such topic, and then creates it. Here that is said for a second.
"""

from collections.abc import Iterable

from posthouse.model.clock import Clock

SECONDS = 1.0


class RecentDeletions:
    """Owned by the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}
        """In the order of time."""

    def add(self, names: Iterable[str]) -> None:
        self._forget()
        until = self._clock.monotonic() + SECONDS
        for name in names:
            self._until.pop(name, None)
            self._until[name] = until

    def __contains__(self, name: str) -> bool:
        self._forget()
        return name in self._until

    def _forget(self) -> None:
        now = self._clock.monotonic()
        while self._until:
            oldest = next(iter(self._until))
            if self._until[oldest] > now:
                return
            del self._until[oldest]
