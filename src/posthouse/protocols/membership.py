"""What a broker that shares its storage knows of its cluster, for the protocols."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from posthouse.model.brokers import ClusterBroker, ClusterView


class HeldLease(Protocol):
    """The right to serve, which this broker has taken."""

    @property
    def epoch(self) -> int: ...

    @property
    def is_valid(self) -> bool:
        """Whether the broker may serve now. By its own clock, so it is known without asking."""

    @property
    def is_cut_off(self) -> bool:
        """Whether the lease is over because the database cannot be reached. Records that are known to be
        durable may still be read."""

    @property
    def seconds_left(self) -> float: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """Of the broker that holds the lease: only that one serves protocols."""

    own: ClusterBroker
    """This broker. It is the leader of all partitions, coordinator and controller."""
    lease: HeldLease
    view: Callable[[], ClusterView]

    def brokers(self) -> list[ClusterBroker]:
        """The live brokers, this one always among them, by id."""
        found = list(self.view().brokers)
        if all(each.id != self.own.id for each in found):
            found.append(self.own)
            found.sort(key=lambda each: each.id)
        return found

    def has_others(self) -> bool:
        """Whether other brokers were alive when the database was last heard of. One of them may be the holder
        by now if this one is cut off."""
        return any(each.id != self.own.id for each in self.view().brokers)

    def may_serve(self) -> bool:
        return self.lease.is_valid

    def may_read(self) -> bool:
        """Whether at least records that are known to be durable may be read."""
        return self.lease.is_valid or self.lease.is_cut_off
