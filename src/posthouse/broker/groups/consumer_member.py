"""One member of a group whose partitions the broker assigns, and its reconciliation.

Two members never hold the same partition. A member first revokes partitions, which it confirms by reporting
what it owns. Only then do the others get them. Its epoch follows the group's: it advances when the member has
nothing left to revoke.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, auto

from posthouse.broker.groups.membership import MemberClient, OfferedProtocol
from posthouse.broker.groups.patterns import TopicPattern
from posthouse.model.ids import InstanceId, MemberId, PartitionId

JOINING = 0
LEAVING = -1
LEAVING_FOR_A_WHILE = -2
"""Epoch of a static member that leaves temporarily."""

NOTHING: frozenset[PartitionId] = frozenset()

_DEFAULT_REBALANCE_SECONDS = 300.0
"""For members that join without a rebalance timeout: librdkafka 2.15 does that after a quick unsubscribe and
subscribe. It is the clients' own default (`max.poll.interval.ms`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A heartbeat. None means: unchanged."""

    member: MemberId
    epoch: int
    instance: InstanceId | None = None
    client: MemberClient = MemberClient()
    rack: str | None = None
    rebalance_seconds: float | None = None
    topics: frozenset[str] | None = None
    pattern: TopicPattern | None = None
    """An empty expression removes an earlier one."""
    assignor: str | None = None
    owned: frozenset[PartitionId] | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the heartbeat has all fields, because the member does not know the broker's state."""
        subscribes = self.topics is not None or self.pattern is not None
        return self.rebalance_seconds is not None and subscribes and self.owned is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class BeatAnswer:
    member: MemberId
    epoch: int
    assignment: frozenset[PartitionId] | None = None
    """None: no change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """Additional state of a member that speaks the classic protocol; see `guests`."""

    protocols: tuple[OfferedProtocol, ...]
    session_seconds: float


class ConsumerMemberState(Enum):
    STABLE = auto()
    GIVING_UP = auto()
    """It was told to revoke partitions and has not confirmed."""
    WAITING = auto()
    """Other members have not yet revoked partitions that it is to get."""


class ConsumerMember:
    __slots__ = (
        "assigned",
        "assignor",
        "client",
        "epoch",
        "expires_at",
        "give_up_until",
        "given_in",
        "giving_up",
        "guest",
        "id",
        "instance",
        "pattern",
        "previous_epoch",
        "progress",
        "rack",
        "rebalance_seconds",
        "topics",
    )

    def __init__(self, beat: Beat) -> None:
        self.id = beat.member
        self.instance = beat.instance
        self.client = beat.client
        self.rack = beat.rack
        self.rebalance_seconds = _DEFAULT_REBALANCE_SECONDS
        self.topics: frozenset[str] = frozenset()
        self.pattern: TopicPattern | None = None
        self.assignor: str | None = None
        self.epoch = JOINING
        self.previous_epoch = JOINING
        self.progress = ConsumerMemberState.STABLE
        self.assigned = NOTHING
        self.giving_up = NOTHING
        self.given_in: dict[PartitionId, int] = {}
        """The epoch in which each partition was assigned; partitions being revoked are included."""
        self.expires_at = math.inf
        self.give_up_until = math.inf
        self.guest: Guest | None = None

    @property
    def held(self) -> frozenset[PartitionId]:
        """The partitions that no other member may get."""
        return self.assigned | self.giving_up

    @property
    def is_away(self) -> bool:
        return self.epoch == LEAVING_FOR_A_WHILE

    def update(self, beat: Beat) -> bool:
        """Update from a heartbeat; returns whether the subscription changed."""
        before = (self.topics, self.pattern.text if self.pattern else "")
        self.client = beat.client
        if beat.rack is not None:
            self.rack = beat.rack
        if beat.rebalance_seconds is not None:
            self.rebalance_seconds = beat.rebalance_seconds
        if beat.topics is not None:
            self.topics = beat.topics
        if beat.pattern is not None:
            self.pattern = beat.pattern if beat.pattern.text else None
        if beat.assignor is not None:
            self.assignor = beat.assignor or None
        return before != (self.topics, self.pattern.text if self.pattern else "")

    def restart(self) -> None:
        """The member starts again and owns no partitions."""
        self.epoch = self.previous_epoch = JOINING
        self._settle(NOTHING, NOTHING, ConsumerMemberState.STABLE)

    def rest(self) -> None:
        """The member is away temporarily: it keeps its assignment; partitions to revoke become free."""
        self.epoch = self.previous_epoch = LEAVING_FOR_A_WHILE
        self._settle(self.assigned, NOTHING, ConsumerMemberState.STABLE)

    def reconcile(
        self,
        target: frozenset[PartitionId],
        target_epoch: int,
        owned: frozenset[PartitionId] | None,
        taken: Collection[PartitionId],
        now: float,
    ) -> None:
        """One step towards the target. `taken` are partitions of other members; `owned` is what the member
        reports."""
        if self.progress is ConsumerMemberState.GIVING_UP:
            if owned is None or owned & self.giving_up:
                return
            self._settle(self.assigned, NOTHING, ConsumerMemberState.WAITING)
        elif self.progress is ConsumerMemberState.STABLE and self.epoch == target_epoch:
            return
        keeps = self.assigned & target
        loses = self.assigned - target
        if loses and (owned is None or owned & loses):
            self.give_up_until = now + self.rebalance_seconds
            self._settle(keeps, loses, ConsumerMemberState.GIVING_UP)
            return
        gains = frozenset(partition for partition in target - keeps if partition not in taken)
        waits = len(keeps) + len(gains) < len(target)
        if self.epoch != target_epoch:
            self.previous_epoch, self.epoch = self.epoch, target_epoch
        self._settle(
            keeps | gains, NOTHING, ConsumerMemberState.WAITING if waits else ConsumerMemberState.STABLE
        )

    def _settle(
        self,
        assigned: frozenset[PartitionId],
        giving_up: frozenset[PartitionId],
        progress: ConsumerMemberState,
    ) -> None:
        self.given_in = {each: self.given_in.get(each, self.epoch) for each in assigned | giving_up}
        self.assigned = assigned
        self.giving_up = giving_up
        self.progress = progress
        if progress is not ConsumerMemberState.GIVING_UP:
            self.give_up_until = math.inf
