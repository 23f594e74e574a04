"""The brokers of a cluster, as all of them see it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from posthouse.model.address import Address
from posthouse.model.scopes import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterBroker:
    """A broker that has registered and was seen a moment ago."""

    id: int
    """The node id of Kafka clients. It belongs to the name of the broker."""
    name: str
    incarnation: UUID
    """One start of one process."""
    addresses: Mapping[str, Address]
    """Where clients and other brokers reach it, by the name of the listener."""
    rack: str | None = None
    version: str = ""
    seconds_since_start: float = 0.0
    lease_seconds_left: float = 0.0
    """How long its lease lasts unless it is renewed, by the clock of the database; 0 without a lease."""
    is_ready: bool = True
    """Whether it serves clients, and so can hold scopes. A broker that starts is not ready."""
    is_draining: bool = False
    """An operator wants it to hold no scopes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """What one heartbeat of a broker has found."""

    brokers: tuple[ClusterBroker, ...] = ()
    """The live ones, by id."""
    holder_incarnation: UUID | None = None
    """Of the coordinator; None if that scope is free."""
    holders: Mapping[Scope, UUID] = field(default_factory=dict)
    """The incarnation of the broker that holds each scope, also if its lease is over. Free scopes are not in
    it."""
    wanted: Mapping[Scope, int] = field(default_factory=dict)
    """The ids of the brokers that operators want to hold scopes."""
    epoch: int = 0
    """Of the scope coordinator."""
    lease_seconds_left: float = 0.0
    """Of the coordinator, by the clock of the database."""
    commits: int = 0
    """Of the coordinator, since its start."""
    seen_commits: int | None = None
    """Of the coordinator that this broker saw last, which may be another by now; None if it saw none."""
    own_commits: int = 0
    """Of this broker, since its start."""
    commits_of: Mapping[UUID, int] = field(default_factory=dict)
    """Of every broker that has registered, live or not, and of those that this broker has seen before."""
    timeline: int = 0
    """Of the database: a promoted standby raises it."""
    confirmed_losses: int = 0
    """How often an operator has confirmed that the database lost commits."""
    loss: str | None = None
    """Why the database is known to have lost commits, until an operator confirms it."""
    by_incarnation: Mapping[UUID, ClusterBroker] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        known = {each.incarnation: each for each in self.brokers}
        object.__setattr__(self, "by_incarnation", known)

    @property
    def holder(self) -> ClusterBroker | None:
        """The live broker that is the coordinator."""
        if self.holder_incarnation is None:
            return None
        return self.by_incarnation.get(self.holder_incarnation)

    def holder_of(self, scope: Scope) -> ClusterBroker | None:
        """The live broker that holds the scope."""
        incarnation = self.holders.get(scope)
        return None if incarnation is None else self.by_incarnation.get(incarnation)
