"""Names of recently deleted topics, which are not auto-created for a moment.

A producer, or an admin client that checks whether a topic is deleted, sends requests that would create the
topic again. Kafka answers once that the topic does not exist, and then creates it. Posthouse gives that
answer for one second.
"""

from collections.abc import Iterable

from posthouse.model.clock import Clock

SECONDS = 1.0


class RecentDeletions:
    """Owned by the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}
        """Expiry by name, in order of time."""

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
