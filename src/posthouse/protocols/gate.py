"""Who may be connected: how many in all, of one address, and of those who have not shown yet what they want.

A *visitor* has proven itself when it has logged in or, where nobody has to, made its first request. Until
then it has little time, and is the first to go when room is needed: somebody who only opens connections
cannot keep out those who use them. Addresses whose visitors misbehave have to wait: see `offences`.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from posthouse.model.clock import Clock
from posthouse.protocols.offences import NOTHING_CAME_SECONDS, Offences

log = logging.getLogger(__name__)

SECONDS_TO_PROVE = 10.0
SECONDS_TO_WAIT = 1.0
OFFENDERS_AT_ONCE = 32
"""Visitors of an address that has to wait, who have not proven themselves."""
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


@dataclass(slots=True)
class _Host:
    visitors: int = 0
    unproven: dict[Visitor, None] = field(default_factory=dict)
    """In the order in which they came."""


class Gate:
    """Owned by the event loop. One for all listeners of a broker."""

    def __init__(
        self,
        clock: Clock,
        *,
        total: int,
        per_address: int = 0,
        seconds_to_prove: float = SECONDS_TO_PROVE,
        seconds_to_wait: float = SECONDS_TO_WAIT,
    ) -> None:
        self._clock = clock
        self._total = total
        self._per_address = per_address
        self._most_unproven = min(total, max(_UNPROVEN_AT_LEAST, total // _UNPROVEN_SHARE))
        self._seconds_to_prove = seconds_to_prove
        self._offences = Offences(clock, seconds_to_wait)
        self._unproven: dict[Visitor, None] = {}
        self._hosts: dict[str, _Host] = {}
        self._count = 0
        self._sent_away = 0
        """Since the last sweep."""

    def __len__(self) -> int:
        return self._count

    @property
    def unproven(self) -> int:
        return len(self._unproven)

    def enter(self, visitor: Visitor) -> str | None:
        """The reason why there is no room for it, None if there is."""
        host = self._hosts.get(visitor.host) or _Host()
        if self._per_address and host.visitors >= self._per_address:
            return f"its address has {self._per_address} already (max_connections_per_address)"
        if len(host.unproven) >= OFFENDERS_AT_ONCE and self.wait(visitor):
            self._send_away(next(iter(host.unproven)), "others of its address wait, which was refused often")
        if self._count >= self._total or len(self._unproven) >= self._most_unproven:
            if not self._unproven:
                return f"all {self._total} are taken (max_connections)"
            self._send_away(next(iter(self._unproven)), "others wait, and it has not shown what it wants")
        visitor.since = self._clock.monotonic()
        self._count += 1
        host = self._hosts.setdefault(visitor.host, host)
        host.visitors += 1
        host.unproven[visitor] = None
        self._unproven[visitor] = None
        return None

    def wait(self, visitor: Visitor) -> float:
        """Seconds until it is listened to."""
        return self._offences.wait(visitor.host)

    def offended(self, visitor: Visitor) -> float:
        """It did what no client does, or not again and again. How long its address has to wait."""
        return self._offences.add(visitor.host)

    def prove(self, visitor: Visitor) -> None:
        self._take_from_unproven(visitor)

    def _take_from_unproven(self, visitor: Visitor) -> bool:
        """Whether it was one of them."""
        if visitor not in self._unproven:
            return False
        del self._unproven[visitor]
        del self._hosts[visitor.host].unproven[visitor]
        return True

    def leave(self, visitor: Visitor) -> None:
        if self._take_from_unproven(visitor):
            self._offences.add(visitor.host, NOTHING_CAME_SECONDS)
        self._count -= 1
        host = self._hosts[visitor.host]
        host.visitors -= 1
        if not host.visitors:
            del self._hosts[visitor.host]

    def sweep(self) -> None:
        """Send those away who had their time. They are in the order in which they came."""
        self._offences.sweep()
        if self._sent_away > 1:
            log.info("sent %d connections away in about a second", self._sent_away)
        self._sent_away = 0
        latest = self._clock.monotonic() - self._seconds_to_prove
        for visitor in list(self._unproven):
            if visitor.since > latest:
                break
            self._send_away(visitor, f"no login or request in {self._seconds_to_prove:g} s")

    def _send_away(self, visitor: Visitor, reason: str) -> None:
        self._take_from_unproven(visitor)
        self._offences.add(visitor.host)
        if not self._sent_away:  # one line for the first; a flood of them is counted
            log.info("sending the connection from %s away: %s", visitor.peer, reason)
        self._sent_away += 1
        visitor.send_away()
