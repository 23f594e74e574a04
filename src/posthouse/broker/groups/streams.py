"""A group of Kafka Streams members (KIP-1071): they send the topology, the broker assigns the tasks.

The epochs are those of `consumer`. The group's epoch grows whenever an input of the assignment changes
(members, their processes, topology, topics, settings). The target's epoch is the group epoch for which the
tasks were assigned. Each member's epoch follows. While topics are missing or invalid, members get no tasks
and a status with the reason.

A plain object like `ConsumerGroup`: `wake_at` is the time of the next `tick`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from posthouse.broker.groups.membership import NO_GENERATION, MemberIdentity
from posthouse.broker.groups.streams_answers import EndpointTopics, StreamsAnswer, Told, Trouble
from posthouse.broker.groups.streams_assignor import NOTHING, Task, Tasks, Worker, assign_sticky
from posthouse.broker.groups.streams_member import JOINING, LEAVING, StreamsBeat, StreamsMember
from posthouse.broker.groups.streams_topology import (
    ConfiguredTopology,
    Topology,
    configured,
)
from posthouse.broker.groups.topic_view import NO_TOPICS, TopicView
from posthouse.model.errors import (
    BadRequest,
    FencedMemberEpoch,
    GroupFull,
    InvalidTopology,
    PosthouseError,
    StaleMemberEpoch,
    UnknownMember,
)
from posthouse.model.ids import MemberId, PartitionId, TopicId

_FIRST_EPOCH = 1
"""The epoch of a group that has assigned nothing yet: a member's 0 means that it joins."""
_NOT_VALIDATED = -1
_MANY_COPIES = 1_000
_COPIES_A_SECOND = 5_000
"""An assignment takes about 10 µs per task and standby, during which the event loop is blocked. With many
tasks, the interval between two assignments must be long enough to make this a small part of it."""


class StreamsState(Enum):
    EMPTY = auto()
    NOT_READY = auto()
    """Topics are missing or invalid."""
    ASSIGNING = auto()
    RECONCILING = auto()
    STABLE = auto()
    DEAD = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsRules:
    session_seconds: float
    max_size: int
    initial_seconds: float = 0.0
    """Initial rebalance delay of a new group."""
    assignment_seconds: float = 0.0
    """Minimum interval between two assignments."""
    standbys: int = 0


class StreamsGroup:
    def __init__(self, rules: StreamsRules, topology: Topology | None = None) -> None:
        self.rules = rules
        """May change at any time; running timers keep their deadlines."""
        self.topology = topology
        self.configured: ConfiguredTopology | None = None
        self._topics = NO_TOPICS
        self._seen: dict[str, tuple[TopicId, int]] = {}
        self._validated_epoch = _NOT_VALIDATED
        self._standbys = rules.standbys
        self._members: dict[MemberId, StreamsMember] = {}
        self._deleted = False
        self._first_assignment_at = -math.inf
        self._assigned_at = -math.inf
        self._shut_down_by: MemberId | None = None
        self._endpoint_epoch = 0
        self.epoch = self.target_epoch = _FIRST_EPOCH
        self.target: dict[MemberId, Tasks] = {}
        self.wake_at = math.inf

    def __iter__(self) -> Iterator[StreamsMember]:
        return iter(self._members.values())

    @property
    def is_empty(self) -> bool:
        return not self._members

    @property
    def state(self) -> StreamsState:
        if self._deleted:
            return StreamsState.DEAD
        if not self._members:
            return StreamsState.EMPTY
        if self.configured is None or not self.configured.is_ready:
            return StreamsState.NOT_READY
        if self.epoch > self.target_epoch:
            return StreamsState.ASSIGNING
        settled = all(member.is_settled(self.target_epoch) for member in self)
        return StreamsState.STABLE if settled else StreamsState.RECONCILING

    def beat(self, beat: StreamsBeat, topics: TopicView, now: float) -> StreamsAnswer:
        if self._deleted:
            raise UnknownMember("the group has been deleted")
        if beat.epoch == LEAVING:
            return self._leave(beat)
        member = self._joining(beat) if beat.epoch == JOINING else self._reporting(beat)
        topology = self._topology_after(beat)
        self._configure(topology, topics, beat)
        if self.is_empty and self.rules.initial_seconds:
            self._first_assignment_at = now + self.rules.initial_seconds
            self._wake(self._first_assignment_at)
        is_new = member.id not in self._members
        self._members[member.id] = member
        process, endpoint = member.process, member.endpoint
        member.update(beat)
        if is_new or member.process != process:
            self.epoch += 1
        if self._standbys != self.rules.standbys:
            self._standbys = self.rules.standbys
            self.epoch += 1
        if beat.shuts_down and self._shut_down_by is None:
            self._shut_down_by = member.id
        delayed = self._assign_if_due(now)
        before = member.assigned
        member.reconcile(
            self.target.get(member.id, NOTHING),
            self.target_epoch,
            beat.owned,
            lambda wanted: self._free(member, wanted),
            now,
        )
        member.expires_at = now + self.rules.session_seconds
        self._wake(min(member.expires_at, member.give_up_until))
        changed = beat.epoch == JOINING or member.assigned != before
        if member.endpoint != endpoint or (changed and member.endpoint is not None):
            self._endpoint_epoch += 1
        return self._answer(member, beat, delayed, tell_tasks=changed)

    def _answer(
        self, member: StreamsMember, beat: StreamsBeat, delayed: str, *, tell_tasks: bool
    ) -> StreamsAnswer:
        knows = beat.endpoint_epoch == self._endpoint_epoch
        assert self.configured is not None
        return StreamsAnswer(
            member=member.id,
            epoch=member.epoch,
            tasks=member.assigned if tell_tasks else None,
            statuses=tuple(self._statuses(member, delayed)),
            missing=self.configured.missing,
            endpoint_epoch=self._endpoint_epoch,
            endpoints=None if knows else tuple(self._endpoints()),
        )

    def _statuses(self, member: StreamsMember, delayed: str) -> Iterator[Told]:
        assert self.topology is not None
        assert self.configured is not None
        if member.topology_epoch < self.topology.epoch:
            yield Told(
                status=Trouble.STALE_TOPOLOGY,
                detail=f"The member's topology epoch {member.topology_epoch} is behind the group's "
                f"topology epoch {self.topology.epoch}.",
            )
        if delayed:
            yield Told(status=Trouble.ASSIGNMENT_DELAYED, detail=delayed)
        if self.configured.obstacle is not None:
            yield Told(status=self.configured.obstacle, detail=self.configured.detail)
        if self._shut_down_by is not None:
            yield Told(
                status=Trouble.SHUTDOWN_APPLICATION,
                detail=f"Streams group member {self._shut_down_by} encountered a fatal error and requested "
                "a shutdown for the entire application.",
            )

    def _endpoints(self) -> Iterator[EndpointTopics]:
        for member in self:
            if member.endpoint is not None:
                yield EndpointTopics(
                    endpoint=member.endpoint,
                    active=self._partitions(member.assigned.active),
                    standby=self._partitions(member.assigned.standby),
                )

    def _partitions(self, tasks: frozenset[Task]) -> dict[str, list[int]]:
        """The partitions that tasks read. A topic may have fewer partitions than its subtopology has
        tasks."""
        assert self.configured is not None
        found: dict[str, list[int]] = {}
        partitions: dict[str, list[int]] = {}
        for task in sorted(tasks):
            partitions.setdefault(task.subtopology, []).append(task.partition)
        for each in self.configured.subtopologies:
            indexes = partitions.get(each.id, [])
            for name in each.read if indexes else ():
                topic = self._topics.by_name.get(name)
                size = 0 if topic is None else topic.partitions
                found[name] = [index for index in indexes if index < size]
        return found

    def check_commit(self, identity: MemberIdentity, now: float, *, transactional: bool = False) -> None:
        """Raises unless this member, or a client without membership, may commit offsets now."""
        if identity.generation < 0 and self.is_empty:
            return
        if transactional and identity.generation == NO_GENERATION and not identity.member:
            return
        member = self._known(identity.member)
        if identity.generation > member.epoch:
            raise StaleMemberEpoch(f"the member is in epoch {member.epoch}, not yet {identity.generation}")

    def check_commit_of(self, identity: MemberIdentity, topic: str, partition: PartitionId) -> None:
        """With an older epoch, a member may commit offsets of tasks that it has had since then."""
        member = self._members.get(identity.member)
        if member is None or identity.generation == member.epoch:
            return
        subtopology = None if self.topology is None else self.topology.subtopology_of(topic)
        index = partition.index
        given_in = member.given_in.get(Task(subtopology or "", index))
        if given_in is None:
            raise StaleMemberEpoch(
                f"{topic}-{index} belongs to no task of the member in epoch {member.epoch}"
            )
        if identity.generation < given_in:
            raise StaleMemberEpoch(
                f"the member has the task of {topic}-{index} since epoch {given_in}, "
                f"not {identity.generation}"
            )

    def check_epoch(self, identity: MemberIdentity) -> None:
        member = self._known(identity.member)
        if identity.generation != member.epoch:
            raise StaleMemberEpoch(f"the member is in epoch {member.epoch}, not {identity.generation}")

    def tick(self, now: float) -> None:
        """Remove members whose session or rebalance timeout has expired."""
        for member in [each for each in self if min(each.expires_at, each.give_up_until) <= now]:
            self._remove(member)
        if self._members:
            self._assign_if_due(now)
        times = [min(member.expires_at, member.give_up_until) for member in self]
        if self._first_assignment_at > now:
            times.append(self._first_assignment_at)
        self.wake_at = min(times, default=math.inf)

    def close(self, reason: PosthouseError) -> None:
        """No-op: members never wait here."""

    def delete(self) -> None:
        self._deleted = True

    def subscribed_topics(self) -> frozenset[TopicId]:
        names = [name for each in self.topology.subtopologies for name in each.read] if self.topology else []
        found = [self._topics.by_name.get(name) for name in names]
        return frozenset(topic.id for topic in found if topic is not None)

    def _joining(self, beat: StreamsBeat) -> StreamsMember:
        member = self._members.get(beat.member)
        if member is None:
            if len(self._members) >= self.rules.max_size:
                raise GroupFull(f"the group has {self.rules.max_size} members already")
            return StreamsMember(beat.member)
        return member

    def _known(self, member_id: MemberId) -> StreamsMember:
        member = self._members.get(member_id)
        if member is None:
            raise UnknownMember(f"{member_id!r} is not a member")
        return member

    def _reporting(self, beat: StreamsBeat) -> StreamsMember:
        member = self._known(beat.member)
        # The answer with a new epoch may have been lost; the member then owns no more than its previous
        # assignment.
        missed_answer = beat.epoch == member.previous_epoch and (
            beat.owned is not None and beat.owned <= member.assigned
        )
        if beat.epoch != member.epoch and not missed_answer:
            raise FencedMemberEpoch(f"the member is in epoch {member.epoch}, not {beat.epoch}")
        return member

    def _topology_after(self, beat: StreamsBeat) -> Topology:
        known, brought = self.topology, beat.topology
        if brought is None:
            if known is None:
                raise InvalidTopology("the group has no topology yet: join with one")
            return known
        if known is None or self.is_empty:
            return brought
        if known.epoch <= brought.epoch and known != brought:
            raise BadRequest(
                "the members of the group have another topology; stop all of them before it can change"
            )
        return known

    def _configure(self, topology: Topology, topics: TopicView, beat: StreamsBeat) -> None:
        """Compute partitions and tasks after a change of topology or topics. Raises, and changes nothing, if
        the topology or the member's report is invalid."""
        found, seen = self.configured, self._seen
        if found is None or topology is not self.topology or topics is not self._topics:
            seen = {
                name: (topic.id, topic.partitions)
                for name in topology.required
                if (topic := topics.by_name.get(name)) is not None
            }
            if found is None or topology != self.topology or seen != self._seen:
                found = configured(topology, topics)
        if found.is_ready and beat.owned is not None:
            _check_tasks(found, beat.owned)
        if seen != self._seen or topology != self.topology:
            self.epoch += 1
        validated = topology.epoch if found.is_ready else _NOT_VALIDATED
        if validated != self._validated_epoch:
            self.epoch += 1
        self.topology, self.configured, self._topics = topology, found, topics
        self._seen, self._validated_epoch = seen, validated

    def _assign_if_due(self, now: float) -> str:
        """Assign tasks; returns why the assignment is delayed, or an empty string."""
        if now < self._first_assignment_at:
            return "Assignment delayed due to the configured initial rebalance delay."
        if self.epoch <= self.target_epoch or self.configured is None:
            return ""
        if now < self._assigned_at + self.rules.assignment_seconds:
            return "Assignment delayed due to the configured assignment interval."
        if now < self._assigned_at + self._least_seconds(self.configured):
            return "Assignment delayed due to the number of tasks."
        workers = {
            member.id: Worker(process=member.process, current=self.target.get(member.id, NOTHING))
            for member in self
        }
        ready = self.configured.subtopologies if self.configured.is_ready else ()
        self.target = assign_sticky(workers, ready, self._standbys)
        self.target_epoch = self.epoch
        self._assigned_at = now
        return ""

    def _least_seconds(self, topology: ConfiguredTopology) -> float:
        """Minimum interval between two assignments, whatever the settings are."""
        copies = sum(each.tasks for each in topology.subtopologies) * (1 + self._standbys)
        return 0.0 if copies < _MANY_COPIES else max(1.0, copies / _COPIES_A_SECOND)

    def _free(self, member: StreamsMember, wanted: Tasks) -> Tasks:
        """The tasks that no other member has as active, and that its process does not have at all."""
        active: set[Task] = set()
        own: set[Task] = set()
        for other in self:
            if other is not member:
                held = other.held
                active |= held.active
                if other.process == member.process:
                    own |= held.active | held.standby | held.warmup
        return Tasks(
            active=wanted.active - active - own, standby=wanted.standby - own, warmup=wanted.warmup - own
        )

    def _leave(self, beat: StreamsBeat) -> StreamsAnswer:
        member = self._known(beat.member)
        if beat.shuts_down and self._shut_down_by is None:
            self._shut_down_by = member.id
        self._remove(member)
        return StreamsAnswer(member=member.id, epoch=LEAVING, endpoint_epoch=self._endpoint_epoch)

    def _remove(self, member: StreamsMember) -> None:
        del self._members[member.id]
        self.target.pop(member.id, None)
        self.epoch += 1
        if member.endpoint is not None:
            self._endpoint_epoch += 1
        if self.is_empty:
            self._shut_down_by = None
            self._first_assignment_at = -math.inf

    def _wake(self, at: float) -> None:
        self.wake_at = min(self.wake_at, at)


def _check_tasks(found: ConfiguredTopology, owned: Tasks) -> None:
    counts = {each.id: each.tasks for each in found.subtopologies}
    for task in (*owned.active, *owned.standby, *owned.warmup):
        count = counts.get(task.subtopology)
        if count is None:
            raise BadRequest(f"the topology has no subtopology {task.subtopology!r}")
        if not 0 <= task.partition < count:
            raise BadRequest(f"the subtopology {task.subtopology!r} has no task {task.partition}")
