"""What a broker that shares its storage knows of its cluster, for the protocols.

One broker holds the scope of the *coordinator*: settings of topics, users and permissions, and the HTTP API.
The others are *members*. All of them serve logs, and the groups, transactional ids and namespaces whose
scopes they hold, each under a lease of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from posthouse.broker.cluster_usage import NO_OTHERS, ClusterUsage
from posthouse.model.brokers import ClusterBroker, ClusterView
from posthouse.model.scopes import COORDINATOR, Scope
from posthouse.protocols.scope_moves import ScopeMoves


class Standing(Protocol):
    """Whether this broker may serve. By its own clock, so it is known without asking."""

    @property
    def is_valid(self) -> bool:
        """Whether the broker may serve now."""

    @property
    def is_cut_off(self) -> bool:
        """Whether the broker may not serve because the database cannot be reached. Records that are known to
        be durable may still be read."""


class HeldLease(Standing, Protocol):
    """The right to coordinate, which this broker has taken."""

    @property
    def epoch(self) -> int:
        """Of the scope coordinator."""

    @property
    def seconds_left(self) -> float: ...


class ClusterControl(Protocol):
    """What operators want of the cluster. The brokers follow it after their next heartbeats."""

    async def drain(self, broker: str, *, is_draining: bool) -> None:
        """Let the broker of this name hold no scopes, or let it hold some again. Raises NotFound."""

    async def want(self, scope: Scope, broker: str | None) -> None:
        """Move the scope to the broker of this name, and keep it there while that lives; None leaves it to
        the plan. Raises NotFound."""


class MemberStanding:
    """A member may serve while it has its lease and reaches the database. Otherwise it still reads logs."""

    __slots__ = ("_is_cut_off",)

    def __init__(self, is_cut_off: Callable[[], bool]) -> None:
        self._is_cut_off = is_cut_off

    @property
    def is_valid(self) -> bool:
        return not self._is_cut_off()

    @property
    def is_cut_off(self) -> bool:
        return self._is_cut_off()


_NEVER_CUT_OFF = MemberStanding(lambda: False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    own: ClusterBroker
    """This broker."""
    view: Callable[[], ClusterView]
    coordinating: Callable[[], HeldLease | None] = lambda: None
    """While this broker is the coordinator, its lease; None in a member."""
    member: MemberStanding = _NEVER_CUT_OFF
    """Of a member; without meaning in the coordinator."""
    control: ClusterControl | None = None
    """None if operators cannot change the cluster through this broker."""
    moves: ScopeMoves = field(default_factory=ScopeMoves)
    """Of this broker."""
    usage: ClusterUsage = NO_OTHERS
    """What clients use of limits at the other brokers."""

    @property
    def coordinates(self) -> bool:
        """Whether this broker is the coordinator now."""
        return self.coordinating() is not None

    @property
    def standing(self) -> Standing:
        return self.coordinating() or self.member

    @property
    def is_current(self) -> bool:
        """Whether the database was heard of a moment ago. Otherwise this is what was known last."""
        return not self.standing.is_cut_off

    def brokers(self) -> list[ClusterBroker]:
        """The live brokers, this one always among them, by id."""
        found = list(self.view().brokers)
        if all(each.id != self.own.id for each in found):
            found.append(self.own)
            found.sort(key=lambda each: each.id)
        return found

    def coordinator(self) -> ClusterBroker | None:
        """None while no live broker is known to be the coordinator."""
        if self.coordinates:
            return self.own
        holder = self.view().holder
        # A view that is a moment old may still name this broker, which has given up the scope.
        return None if holder is None or holder.incarnation == self.own.incarnation else holder

    def holder_of(self, scope: Scope) -> ClusterBroker | None:
        """The live broker that is known to hold the scope."""
        return self.coordinator() if scope == COORDINATOR else self.view().holder_of(scope)

    def has_others(self) -> bool:
        """Whether other brokers were alive when the database was last heard of. One of them may lead
        partitions, or coordinate, if this one is cut off."""
        return any(each.id != self.own.id for each in self.view().brokers)

    @property
    def epoch(self) -> int:
        """Of the scope coordinator."""
        lease = self.coordinating()
        return self.view().epoch if lease is None else lease.epoch

    @property
    def lease_seconds_left(self) -> float:
        """How long the lease of the coordinator lasts unless it is renewed."""
        lease = self.coordinating()
        return self.view().lease_seconds_left if lease is None else lease.seconds_left

    def may_serve(self) -> bool:
        return self.standing.is_valid

    def may_coordinate(self) -> bool:
        """Whether clients of the coordinator may be answered, if this broker is that."""
        lease = self.coordinating()
        return lease is None or lease.is_valid

    def may_read(self) -> bool:
        """Whether at least records that are known to be durable may be read."""
        standing = self.standing
        return standing.is_valid or standing.is_cut_off
