"""A rate limit on addresses whose clients misbehave.

A refusal takes time too, and a client that is refused often comes back at once. So each *offence* is a second
of debt of its address, which time pays off. Some seconds of debt are free; connections of an address that
owes more are delayed. In the end such an address is refused about once a second, and other clients do not
notice.
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
        """No address waits longer than `most_seconds`."""
        self._clock = clock
        self._most = most_seconds
        self._paid_at: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._paid_at)

    def add(self, owner: str, seconds: float = OFFENCE_SECONDS) -> float:
        """Add an offence. Returns how long the address has to wait now."""
        now = self._clock.monotonic()
        owed = max(self._paid_at.pop(owner, now) - now, 0.0) + seconds
        self._paid_at[owner] = now + min(owed, FREE_SECONDS + self._most)
        if len(self._paid_at) > _MOST_ADDRESSES:
            del self._paid_at[next(iter(self._paid_at))]
        return self._beyond_free(owed)

    def wait(self, owner: str) -> float:
        """How long a new connection of the address has to wait; nearly always 0."""
        if not self._paid_at:
            return 0.0
        now = self._clock.monotonic()
        return self._beyond_free(self._paid_at.get(owner, now) - now)

    def _beyond_free(self, owed: float) -> float:
        return min(max(owed - FREE_SECONDS, 0.0), self._most)

    def sweep(self) -> None:
        """Forget addresses without debt."""
        now = self._clock.monotonic()
        for owner in [owner for owner, paid_at in self._paid_at.items() if paid_at <= now]:
            del self._paid_at[owner]
