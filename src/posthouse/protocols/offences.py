"""A rate limit on addresses whose clients misbehave.

A refusal costs time too, and a refused client often reconnects at once. So each *offence* is a second of debt
of its address, which time pays off. Some seconds of debt are free; connections of an address with more debt
are delayed. In the end such an address is refused about once a second, and other clients are not affected.
"""

from posthouse.model.clock import Clock

OFFENCE_SECONDS = 1.0
NOTHING_CAME_SECONDS = 0.1
"""Debt for a connection that ends before it has sent a request: probes do that, and so do floods."""
FREE_SECONDS = 10.0
_MOST_ADDRESSES = 10_000


class Offences:
    """Debts by owner of an address: see `model.networks`."""

    def __init__(self, clock: Clock, most_seconds: float) -> None:
        """The delay of an address is at most `most_seconds`."""
        self._clock = clock
        self._most = most_seconds
        self._paid_at: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._paid_at)

    def add(self, owner: str, seconds: float = OFFENCE_SECONDS) -> float:
        """Add an offence; returns the present delay of the address."""
        now = self._clock.monotonic()
        owed = max(self._paid_at.pop(owner, now) - now, 0.0) + seconds
        self._paid_at[owner] = now + min(owed, FREE_SECONDS + self._most)
        if len(self._paid_at) > _MOST_ADDRESSES:
            del self._paid_at[next(iter(self._paid_at))]
        return self._beyond_free(owed)

    def wait(self, owner: str) -> float:
        """The delay of a new connection of the address; nearly always 0."""
        if not self._paid_at:
            return 0.0
        now = self._clock.monotonic()
        return self._beyond_free(self._paid_at.get(owner, now) - now)

    def _beyond_free(self, owed: float) -> float:
        return min(max(owed - FREE_SECONDS, 0.0), self._most)

    def sweep(self) -> None:
        """Remove addresses without debt."""
        now = self._clock.monotonic()
        for owner in [owner for owner, paid_at in self._paid_at.items() if paid_at <= now]:
            del self._paid_at[owner]
