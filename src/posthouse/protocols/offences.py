"""Addresses whose clients misbehave, and how long they have to wait for it.

To refuse something takes time too, and whoever is refused comes back at once. So each *offence* is a second
that its address owes, and owing is paid off by time. Everybody may owe some seconds; an address that owes
more waits: its connections are not heard for a while. In the end it is refused about once in a second, and
others do not notice.
"""

from posthouse.model.clock import Clock

OFFENCE_SECONDS = 1.0
NOTHING_CAME_SECONDS = 0.1
"""For a connection that ends before it has made a request: probes do that, and so do floods."""
FREE_SECONDS = 10.0
_MOST_ADDRESSES = 10_000


class Offences:
    """By owner of an address: see `model.networks`."""

    def __init__(self, clock: Clock, most_seconds: float) -> None:
        """Nobody waits longer than `most_seconds`."""
        self._clock = clock
        self._most = most_seconds
        self._paid_at: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._paid_at)

    def add(self, owner: str, seconds: float = OFFENCE_SECONDS) -> float:
        """One more. How long the address has to wait now."""
        now = self._clock.monotonic()
        owed = max(self._paid_at.pop(owner, now) - now, 0.0) + seconds
        self._paid_at[owner] = now + min(owed, FREE_SECONDS + self._most)
        if len(self._paid_at) > _MOST_ADDRESSES:
            del self._paid_at[next(iter(self._paid_at))]
        return self._beyond_free(owed)

    def wait(self, owner: str) -> float:
        """How long a new connection of the address has to wait; 0 for nearly everybody."""
        if not self._paid_at:
            return 0.0
        now = self._clock.monotonic()
        return self._beyond_free(self._paid_at.get(owner, now) - now)

    def _beyond_free(self, owed: float) -> float:
        return min(max(owed - FREE_SECONDS, 0.0), self._most)

    def sweep(self) -> None:
        """Forget what is paid off."""
        now = self._clock.monotonic()
        for owner in [owner for owner, paid_at in self._paid_at.items() if paid_at <= now]:
            del self._paid_at[owner]
