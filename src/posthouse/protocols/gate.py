"""Connection limits: in total, per address, and for connections that have not proven themselves yet.

A *visitor* is a connection, also before its protocol has begun. It has proven itself when it has logged in
or, where logins are not required, made its first request. Until then it has little time, and is the first to
be closed when room is needed: clients that only open connections cannot keep out those that use them.
Addresses whose visitors misbehave are delayed: see `offences`.

The total protects this process. The limit per address holds over all brokers of a cluster, approximately: see
`broker/cluster_usage`. A connection that one broker forwards or transfers to another is counted where the
client has connected.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from posthouse.broker.cluster_usage import NO_OTHERS, ClusterUsage
from posthouse.broker.dynamic_settings import ConnectionLimits
from posthouse.model.clock import Clock
from posthouse.model.networks import owner_of
from posthouse.model.usage import Limited, Use
from posthouse.protocols.offences import NOTHING_CAME_SECONDS, Offences

log = logging.getLogger(__name__)

SECONDS_TO_PROVE = 10.0
SECONDS_TO_WAIT = 1.0
OFFENDERS_AT_ONCE = 32
"""Maximum number of unproven visitors of a delayed address."""
SECONDS_TO_BEGIN = 1.0
"""Time for each of those after its delay, while others of its address wait for its place."""
_UNPROVEN_SHARE = 10
_UNPROVEN_AT_LEAST = 64
_CROWD_SHARE = 4
"""An address with this fraction of all unproven visitors is a crowd, and loses its own visitors first."""


@dataclass(slots=True, eq=False)
class Visitor:
    host: str
    peer: str
    close: Callable[[], object]
    owner: str = field(init=False)
    """The owner of the visitor's address."""
    since: float = field(default=0.0, init=False)
    has_joined: bool = field(default=False, init=False)
    """The connection exists, and reports when it is lost."""
    is_unwanted: bool = field(default=False, init=False)
    """It was closed before its connection existed."""
    is_passed_on: bool = field(default=False, init=False)
    """Another broker serves its connection."""
    is_exempt: bool = False
    """Another broker relays requests of a client, to which it has applied its own limits."""
    is_forwarded: bool = False
    """The client has connected to another broker, which counts it, too."""

    def __post_init__(self) -> None:
        self.owner = owner_of(self.host)


@dataclass(slots=True)
class _Address:
    visitors: int = 0
    forwarded: int = 0
    """Of the visitors."""
    unproven: dict[Visitor, None] = field(default_factory=dict)
    """In order of arrival."""


@dataclass(slots=True)
class GateCounters:
    """Since the broker started."""

    accepted: int = 0
    refused: int = 0
    evicted: int = 0
    """Closed because they had not proven themselves, or others needed their place."""
    offences: int = 0


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
        cluster: ClusterUsage = NO_OTHERS,
    ) -> None:
        self._clock = clock
        self._cluster = cluster
        self._total = total
        self._per_address = per_address
        self._most_unproven = _most_unproven(total)
        self._seconds_to_prove = seconds_to_prove
        self._seconds_to_wait = seconds_to_wait
        self._offences = Offences(clock, seconds_to_wait)
        self._unproven: dict[Visitor, None] = {}
        self._addresses: dict[str, _Address] = {}
        self._count = 0
        self._evicted = 0
        """Visitors closed since the last sweep."""
        self.counters = GateCounters()

    def __len__(self) -> int:
        return self._count

    def limit(self, limits: ConnectionLimits) -> None:
        """Change the limits for new connections; existing ones stay."""
        self._total = limits.total
        self._per_address = limits.per_address
        self._most_unproven = _most_unproven(limits.total)

    @property
    def unproven(self) -> int:
        return len(self._unproven)

    def enter(self, visitor: Visitor) -> str | None:
        """The reason for which the visitor is refused, None if it is admitted."""
        refusal = None if visitor.is_exempt else self._admit(visitor)
        if refusal is None:
            self.counters.accepted += 1
        else:
            self.counters.refused += 1
        return refusal

    def _admit(self, visitor: Visitor) -> str | None:
        now = self._clock.monotonic()
        address = self._addresses.get(visitor.owner) or _Address()
        if self._per_address and self._count_of(visitor, address) >= self._per_address:
            return f"its address has {self._per_address} already (max_connections_per_address)"
        if len(address.unproven) >= OFFENDERS_AT_ONCE and self.wait(visitor):
            oldest = next(iter(address.unproven))
            if oldest.since > now - self._seconds_to_wait - SECONDS_TO_BEGIN:
                return (
                    f"its address was refused too often, and {len(address.unproven)} of its connections wait"
                )
            self._evict(oldest, "its address was refused too often, and others of its connections wait")
        if self._count >= self._total or len(self._unproven) >= self._most_unproven:
            if not self._unproven:
                return f"all {self._total} are taken (max_connections)"
            self._make_room(address)
        visitor.since = now
        self._count += 1
        address = self._addresses.setdefault(visitor.owner, address)
        address.visitors += 1
        address.forwarded += visitor.is_forwarded
        address.unproven[visitor] = None
        self._unproven[visitor] = None
        return None

    def _count_of(self, visitor: Visitor, address: _Address) -> int:
        """The connections of the visitor's address, at all brokers if it has connected to this one."""
        if visitor.is_forwarded:  # the other broker has looked, and may have told of this very one already
            return address.visitors
        elsewhere = self._cluster.connections(Limited.ADDRESS, visitor.owner)
        # Others tell also of those that they have forwarded to this broker.
        return address.visitors - address.forwarded + max(address.forwarded, elsewhere)

    def uses(self, least: float) -> Iterator[Use]:
        """The connections of addresses that have at least that part of the limit here."""
        if not self._per_address:
            return
        floor = self._per_address * least
        for owner, address in self._addresses.items():
            count = address.visitors - address.forwarded
            if count and count >= floor:
                yield Use(Limited.ADDRESS, owner, count, self._per_address)

    def _make_room(self, address: _Address) -> None:
        """Close the oldest unproven visitor: of this address, if the address is a crowd."""
        reason = "others wait, and it has not logged in or made a request"
        if len(address.unproven) > self._most_unproven // _CROWD_SHARE:
            oldest = next(iter(address.unproven))
            self._offend(oldest)
            self._evict(oldest, reason)
        else:
            self._evict(next(iter(self._unproven)), reason)

    def relieve(self) -> None:
        """The system is out of descriptors or memory: close the oldest unproven visitor."""
        if self._unproven:
            self._evict(next(iter(self._unproven)), "the system is out of descriptors or memory")

    def wait(self, visitor: Visitor) -> float:
        """Delay in seconds before the visitor is read from."""
        return 0.0 if visitor.is_exempt else self._offences.wait(visitor.owner)

    def offended(self, visitor: Visitor) -> float:
        """Count an offence of the visitor; returns the delay of its address."""
        return self._offend(visitor)

    def _offend(self, visitor: Visitor, seconds: float = 1.0) -> float:
        if visitor.is_exempt:
            return 0.0
        self.counters.offences += 1
        return self._offences.add(visitor.owner, seconds)

    def prove(self, visitor: Visitor) -> None:
        self._take_from_unproven(visitor)

    def _take_from_unproven(self, visitor: Visitor) -> bool:
        """Whether it was unproven."""
        if visitor not in self._unproven:
            return False
        del self._unproven[visitor]
        del self._addresses[visitor.owner].unproven[visitor]
        return True

    def leave(self, visitor: Visitor) -> None:
        if visitor.is_exempt:
            return
        if self._take_from_unproven(visitor):
            self._offend(visitor, NOTHING_CAME_SECONDS)
        self._count -= 1
        address = self._addresses[visitor.owner]
        address.visitors -= 1
        address.forwarded -= visitor.is_forwarded
        if not address.visitors:
            del self._addresses[visitor.owner]

    def sweep(self) -> None:
        """Close visitors that did not prove themselves in time. They are in the order of their arrival."""
        self._offences.sweep()
        if self._evicted > 1:
            log.info("closed %d connections without a login or request within a second", self._evicted)
        self._evicted = 0
        latest = self._clock.monotonic() - self._seconds_to_prove
        for visitor in list(self._unproven):
            if visitor.since > latest:
                break
            self._offend(visitor)
            self._evict(visitor, f"no login or request in {self._seconds_to_prove:g} s")

    def _evict(self, visitor: Visitor, reason: str) -> None:
        self._take_from_unproven(visitor)
        if not self._evicted:  # one line for the first; further ones are counted
            log.info("closing the connection from %s: %s", visitor.peer, reason)
        self._evicted += 1
        self.counters.evicted += 1
        visitor.close()


def _most_unproven(total: int) -> int:
    return min(total, max(_UNPROVEN_AT_LEAST, total // _UNPROVEN_SHARE))
