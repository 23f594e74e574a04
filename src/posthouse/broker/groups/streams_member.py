"""One member of a streams group, and its reconciliation.

Two members never run the same task. A member first revokes tasks, which it confirms by reporting what it
owns. Only then do others get them. A process never has a task twice, as active and as standby. The member's
epoch follows the group's, see `consumer_member`. Each active task remembers the epoch in which it was
assigned, so that offsets of an unmoved task can be committed with an older epoch.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from posthouse.broker.groups.membership import MemberClient
from posthouse.broker.groups.streams_assignor import NOTHING, Task, Tasks
from posthouse.broker.groups.streams_topology import Topology
from posthouse.model.errors import BadRequest, InvalidTopology
from posthouse.model.ids import MemberId

JOINING = 0
LEAVING = -1
NO_TOPOLOGY = -1


@dataclass(frozen=True, slots=True)
class UserEndpoint:
    """The endpoint for interactive queries of the application's state."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsBeat:
    """A heartbeat. None means: unchanged."""

    member: MemberId
    epoch: int
    client: MemberClient = MemberClient()
    rack: str | None = None
    rebalance_seconds: float | None = None
    topology: Topology | None = None
    owned: Tasks | None = None
    process: str | None = None
    endpoint: UserEndpoint | None = None
    tags: Mapping[str, str] | None = None
    endpoint_epoch: int = 0
    """The latest endpoint list that the member has."""
    shuts_down: bool = False
    """The member had a fatal error and asks all members to shut down."""


class StreamsMemberState(Enum):
    STABLE = auto()
    GIVING_UP = auto()
    """It was told to revoke tasks and has not confirmed."""
    WAITING = auto()
    """Other members have not yet revoked tasks that it is to get."""


class StreamsMember:
    __slots__ = (
        "assigned",
        "client",
        "endpoint",
        "epoch",
        "expires_at",
        "give_up_until",
        "given_in",
        "giving_up",
        "id",
        "previous_epoch",
        "process",
        "progress",
        "rack",
        "rebalance_seconds",
        "tags",
        "topology_epoch",
    )

    def __init__(self, member_id: MemberId) -> None:
        self.id = member_id
        self.client = MemberClient()
        self.rack: str | None = None
        self.rebalance_seconds = math.inf
        self.topology_epoch = NO_TOPOLOGY
        self.process = ""
        self.endpoint: UserEndpoint | None = None
        self.tags: Mapping[str, str] = {}
        self.epoch = self.previous_epoch = JOINING
        self.progress = StreamsMemberState.STABLE
        self.assigned = NOTHING
        self.giving_up = NOTHING
        self.given_in: dict[Task, int] = {}
        """The epoch in which each active task was assigned; tasks being revoked are included."""
        self.expires_at = math.inf
        self.give_up_until = math.inf

    @property
    def held(self) -> Tasks:
        return self.assigned | self.giving_up

    def update(self, beat: StreamsBeat) -> None:
        self.client = beat.client
        if beat.rack is not None:
            self.rack = beat.rack
        if beat.rebalance_seconds is not None:
            self.rebalance_seconds = beat.rebalance_seconds
        if beat.topology is not None:
            self.topology_epoch = beat.topology.epoch
        if beat.process is not None:
            self.process = beat.process
        if beat.endpoint is not None:
            self.endpoint = beat.endpoint
        if beat.tags is not None:
            self.tags = dict(beat.tags)

    def is_settled(self, target_epoch: int) -> bool:
        return self.progress is StreamsMemberState.STABLE and self.epoch == target_epoch

    def reconcile(
        self,
        target: Tasks,
        target_epoch: int,
        owned: Tasks | None,
        free: Callable[[Tasks], Tasks],
        now: float,
    ) -> None:
        """One step towards the target. `free` filters the tasks that no other member has; `owned` is
        reported."""
        if self.is_settled(target_epoch):
            return
        epoch = self.epoch
        if self.progress is StreamsMemberState.GIVING_UP:
            if owned is None or owned & self.giving_up:
                return
            self.giving_up = NOTHING
            epoch += 1
        keeps = self.assigned & target
        loses = self.assigned - target
        if loses and (owned is None or owned & loses):
            self._move_to(epoch)
            self.give_up_until = now + self.rebalance_seconds
            self._settle(keeps, loses, StreamsMemberState.GIVING_UP, target_epoch)
            return
        missing = target - keeps
        gains = free(missing)
        self._move_to(target_epoch)
        waits = bool(missing - gains)
        self._settle(
            keeps | gains,
            NOTHING,
            StreamsMemberState.WAITING if waits else StreamsMemberState.STABLE,
            target_epoch,
        )

    def _move_to(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.previous_epoch, self.epoch = self.epoch, epoch

    def _settle(self, assigned: Tasks, giving_up: Tasks, progress: StreamsMemberState, epoch: int) -> None:
        held = assigned.active | giving_up.active
        self.given_in = {task: self.given_in.get(task, epoch) for task in held}
        self.assigned = assigned
        self.giving_up = giving_up
        self.progress = progress
        if progress is not StreamsMemberState.GIVING_UP:
            self.give_up_until = math.inf


def check_streams_beat(beat: StreamsBeat) -> None:
    """Raises if a heartbeat is invalid, independent of any group."""
    if not beat.member:
        raise BadRequest("a member must bring its id")
    if beat.rack == "":
        raise BadRequest("a rack must have a name")
    if beat.epoch < LEAVING:
        raise BadRequest(f"there is no epoch {beat.epoch}: a member of a streams group cannot be static")
    if beat.epoch == JOINING:
        if beat.topology is None:
            raise BadRequest("a member that joins must bring its topology")
        if beat.rebalance_seconds is None:
            raise BadRequest("a member that joins must send its rebalance timeout")
        if beat.owned:
            raise BadRequest("a member that joins owns no tasks")
        for each in beat.topology.subtopologies:
            for changelog in each.changelogs:
                if changelog.partitions:
                    raise InvalidTopology(
                        f"the changelog {changelog.name!r} must not have a number of partitions"
                    )
    elif beat.topology is not None:
        raise BadRequest("a topology can only be brought when joining")
