"""Who may be connected: how many in all, of one address, and of those who have not shown yet what they want.

A *visitor* has proven itself when it has logged in or, where nobody has to, made its first request. Until
then it has little time, and is the first to go when room is needed: somebody who only opens connections
cannot keep out those who use them.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from posthouse.model.clock import Clock

log = logging.getLogger(__name__)

SECONDS_TO_PROVE = 10.0
_UNPROVEN_SHARE = 10
_UNPROVEN_AT_LEAST = 64


@dataclass(slots=True, eq=False)
class Visitor:
    host: str
    peer: str
    send_away: Callable[[], object]
    since: float = field(default=0.0, init=False)
    has_joined: bool = field(default=False, init=False)
    """Its connection is there, and tells when it is gone."""
    is_unwanted: bool = field(default=False, init=False)
    """It was sent away before its connection was there."""


class Gate:
    """Owned by the event loop. One for all listeners of a broker."""

    def __init__(
        self, clock: Clock, *, total: int, per_address: int = 0, seconds_to_prove: float = SECONDS_TO_PROVE
    ) -> None:
        self._clock = clock
        self._total = total
        self._per_address = per_address
        self._most_unproven = min(total, max(_UNPROVEN_AT_LEAST, total // _UNPROVEN_SHARE))
        self._seconds_to_prove = seconds_to_prove
        self._unproven: dict[Visitor, None] = {}
        self._by_host: dict[str, int] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def unproven(self) -> int:
        return len(self._unproven)

    def enter(self, visitor: Visitor) -> str | None:
        """The reason why there is no room for it, None if there is."""
        if self._per_address and self._by_host.get(visitor.host, 0) >= self._per_address:
            return f"its address has {self._per_address} already (max_connections_per_address)"
        if self._count >= self._total or len(self._unproven) >= self._most_unproven:
            if not self._unproven:
                return f"all {self._total} are taken (max_connections)"
            self._send_away(next(iter(self._unproven)), "others wait, and it has not shown what it wants")
        visitor.since = self._clock.monotonic()
        self._count += 1
        self._by_host[visitor.host] = self._by_host.get(visitor.host, 0) + 1
        self._unproven[visitor] = None
        return None

    def prove(self, visitor: Visitor) -> None:
        self._unproven.pop(visitor, None)

    def leave(self, visitor: Visitor) -> None:
        self._unproven.pop(visitor, None)
        self._count -= 1
        left = self._by_host[visitor.host] - 1
        if left:
            self._by_host[visitor.host] = left
        else:
            del self._by_host[visitor.host]

    def sweep(self) -> None:
        """Send those away who had their time. They are in the order in which they came."""
        latest = self._clock.monotonic() - self._seconds_to_prove
        for visitor in list(self._unproven):
            if visitor.since > latest:
                break
            self._send_away(visitor, f"no login or request in {self._seconds_to_prove:g} s")

    def _send_away(self, visitor: Visitor, reason: str) -> None:
        self._unproven.pop(visitor, None)
        log.info("sending the connection from %s away: %s", visitor.peer, reason)
        visitor.send_away()
