"""A group whose partitions the broker assigns (KIP-848): members send heartbeats and get their assignment.

There are three epochs. The group's epoch grows whenever members, subscriptions or topics change. The target's
epoch is the group epoch for which the target assignment was computed. Each member's epoch follows as the
member reconciles. `reconcile` in `consumer_member` is one step of a member.

A plain object like `ClassicGroup`: `wake_at` is the time of the next `tick`.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto

from posthouse.broker.groups.assignors import ASSIGNORS, DEFAULT_ASSIGNOR, Assignment, Subscriber
from posthouse.broker.groups.consumer_member import (
    JOINING,
    LEAVING,
    LEAVING_FOR_A_WHILE,
    NOTHING,
    Beat,
    BeatAnswer,
    ConsumerMember,
    ConsumerMemberState,
)
from posthouse.broker.groups.membership import NO_GENERATION, MemberIdentity
from posthouse.broker.groups.topic_view import NO_TOPICS, TopicView
from posthouse.model.errors import (
    BadRequest,
    FencedInstance,
    FencedMemberEpoch,
    GroupFull,
    IllegalGeneration,
    MembershipError,
    PosthouseError,
    StaleMemberEpoch,
    UnknownMember,
    UnreleasedInstance,
    UnsupportedAssignor,
)
from posthouse.model.ids import InstanceId, MemberId, PartitionId, TopicId


class ConsumerState(Enum):
    EMPTY = auto()
    ASSIGNING = auto()
    RECONCILING = auto()
    STABLE = auto()
    DEAD = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerRules:
    session_seconds: float
    max_size: int
    assignment_seconds: float = 0.0
    """Minimum interval between two assignments."""


class ConsumerGroup:
    def __init__(self, rules: ConsumerRules) -> None:
        self.rules = rules
        """May change at any time; running timers keep their deadlines."""
        self._members: dict[MemberId, ConsumerMember] = {}
        self._static: dict[InstanceId, MemberId] = {}
        self._holders: dict[PartitionId, MemberId] = {}
        self._topics = NO_TOPICS
        self._resolved: dict[MemberId, dict[TopicId, int]] = {}
        self._deleted = False
        self.expected: dict[MemberId, float] = {}
        """Ids that were given to guests and not yet used, with their expiry."""
        self.epoch = 0
        self.target_epoch = 0
        self._assigned_at = -math.inf
        self.target: Assignment = {}
        self.wake_at = math.inf

    def __iter__(self) -> Iterator[ConsumerMember]:
        return iter(self._members.values())

    @property
    def is_empty(self) -> bool:
        return not self._members

    @property
    def has_only_guests(self) -> bool:
        return bool(self._members) and all(member.guest is not None for member in self)

    @property
    def state(self) -> ConsumerState:
        if self._deleted:
            return ConsumerState.DEAD
        if not self._members:
            return ConsumerState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerState.ASSIGNING
        settled = all(
            member.epoch in (self.target_epoch, LEAVING_FOR_A_WHILE)
            and member.progress is ConsumerMemberState.STABLE
            for member in self
        )
        return ConsumerState.STABLE if settled else ConsumerState.RECONCILING

    @property
    def assignor(self) -> str:
        """The assignor that most members ask for."""
        votes = Counter(member.assignor for member in self if member.assignor is not None)
        return votes.most_common(1)[0][0] if votes else DEFAULT_ASSIGNOR

    def beat(self, beat: Beat, topics: TopicView, now: float) -> BeatAnswer:
        if self._deleted:
            raise UnknownMember("the group has been deleted")
        if beat.epoch in (LEAVING, LEAVING_FOR_A_WHILE):
            return self._leave(beat, now)
        if beat.epoch == JOINING:
            member = self._joining(beat)
            beat = replace(beat, owned=NOTHING)
        else:
            member = self._reporting(beat)
        member.guest = None
        before = member.assigned
        self.advance(member, beat, topics, now)
        tell = beat.epoch == JOINING or beat.is_complete or member.assigned != before
        return BeatAnswer(member=member.id, epoch=member.epoch, assignment=member.assigned if tell else None)

    def advance(self, member: ConsumerMember, beat: Beat, topics: TopicView, now: float) -> None:
        """Process a heartbeat, and bring the member one step closer to its target."""
        is_new = member.id not in self._resolved
        changed = member.update(beat)
        self._resolve(topics, member if changed or is_new else None)
        if is_new or changed:
            self.epoch += 1
        if self._is_assignment_due(now):
            self._assign()
            self._assigned_at = now
        self._reconcile(member, beat.owned, now)
        self.seen(member, now)

    def seen(self, member: ConsumerMember, now: float) -> None:
        seconds = member.guest.session_seconds if member.guest else self.rules.session_seconds
        member.expires_at = now + seconds
        self._wake(min(member.expires_at, member.give_up_until))

    def check_commit(self, identity: MemberIdentity, now: float, *, transactional: bool = False) -> None:
        """Raises unless this member, or a client without membership, may commit offsets now."""
        if identity.generation == NO_GENERATION and (
            self.is_empty or (transactional and not identity.member)
        ):
            return
        member = self._known(identity.member)
        if identity.generation > member.epoch:
            raise _wrong_epoch(member, f"the member is in epoch {member.epoch}, not {identity.generation}")

    def check_commit_of(self, identity: MemberIdentity, topic: str, partition: PartitionId) -> None:
        """With an older epoch, a member may commit offsets of partitions that it has had since then: a
        rebalance that does not move a partition must not fail a commit."""
        member = self._members.get(identity.member)
        if member is None or identity.generation == member.epoch:
            return
        given_in = member.given_in.get(partition)
        if given_in is None:
            raise _wrong_epoch(
                member, f"{topic}-{partition.index} is not the member's in epoch {member.epoch}"
            )
        if identity.generation < given_in:
            raise _wrong_epoch(
                member, f"the member has {topic}-{partition.index} since epoch {given_in}, not before"
            )

    def check_epoch(self, identity: MemberIdentity) -> None:
        member = self._known(identity.member)
        if identity.generation != member.epoch:
            raise _wrong_epoch(member, f"the member is in epoch {member.epoch}, not {identity.generation}")

    def _known(self, member_id: MemberId) -> ConsumerMember:
        member = self._members.get(member_id)
        if member is None:
            raise UnknownMember(f"{member_id!r} is not a member")
        return member

    def tick(self, now: float) -> None:
        """Remove members whose session or rebalance timeout has expired."""
        for member in [each for each in self if min(each.expires_at, each.give_up_until) <= now]:
            self.remove(member)
        self.expected = {member: until for member, until in self.expected.items() if until > now}
        times = [min(member.expires_at, member.give_up_until) for member in self]
        times += self.expected.values()
        self.wake_at = min(times, default=math.inf)

    def close(self, reason: PosthouseError) -> None:
        """No-op: members never wait here."""

    def delete(self) -> None:
        self._deleted = True

    def subscribed_topics(self) -> frozenset[TopicId]:
        return frozenset(self.subscribed_sizes())

    def subscribed_sizes(self) -> dict[TopicId, int]:
        """Numbers of partitions, as the group has seen them last."""
        sizes: dict[TopicId, int] = {}
        for resolved in self._resolved.values():
            sizes |= resolved
        return sizes

    def get(self, member_id: MemberId | None) -> ConsumerMember | None:
        return self._members.get(member_id) if member_id is not None else None

    def holder(self, instance: InstanceId | None) -> ConsumerMember | None:
        """The current member with this static instance id."""
        return self.get(self._static.get(instance)) if instance is not None else None

    def is_ahead_of(self, member: ConsumerMember, now: float) -> bool:
        """Whether there is a newer assignment than the member's, or would be if it joined again. While the
        assignment interval delays a change, there is no step for the member."""
        return self.target_epoch > member.epoch or self._is_assignment_due(now)

    def _is_assignment_due(self, now: float) -> bool:
        return self.epoch > self.target_epoch and now >= self._assigned_at + self.rules.assignment_seconds

    def can_gain(self, member: ConsumerMember) -> bool:
        """Whether a partition that it waits for has become free."""
        missing = self.target.get(member.id, NOTHING) - member.assigned
        return any(partition not in self._holders for partition in missing)

    def _joining(self, beat: Beat) -> ConsumerMember:
        holder = self.holder(beat.instance)
        if holder is not None and holder.id != beat.member:
            if not holder.is_away:
                raise UnreleasedInstance(f"{beat.instance!r} is held by another member")
            return self.take_over(holder, beat.member)
        member = self._members.get(beat.member)
        if member is not None:
            # The answer was lost, or the member restarts: either way it owns no partitions.
            if member.epoch != JOINING:
                self._release(member)
                member.restart()
            return member
        return self.add(ConsumerMember(beat))

    def add(self, member: ConsumerMember) -> ConsumerMember:
        if len(self._members) >= self.rules.max_size:
            raise GroupFull(f"the group has {self.rules.max_size} members already")
        self._members[member.id] = member
        if member.instance is not None:
            self._static[member.instance] = member.id
        self._hold(member)
        return member

    def adopt(self, member: ConsumerMember, topics: TopicView, now: float) -> None:
        """Add a member that migrates from another kind of group with its partitions."""
        self.add(member)
        self._topics = topics
        self._resolved[member.id] = topics.resolved(member.topics, member.pattern)
        self.target[member.id] = member.assigned
        member.given_in = dict.fromkeys(member.assigned, member.epoch)
        self.seen(member, now)

    def expect(self, member_id: MemberId, until: float) -> None:
        self.expected[member_id] = until
        self._wake(until)

    def take_over(self, holder: ConsumerMember, member_id: MemberId) -> ConsumerMember:
        """A static member is back under a new id; it keeps its assignment."""
        old_id = holder.id
        del self._members[old_id]
        holder.id = member_id
        holder.epoch = holder.previous_epoch = JOINING
        self._members[holder.id] = holder
        assert holder.instance is not None
        self._static[holder.instance] = holder.id
        self._resolved[holder.id] = self._resolved.pop(old_id)
        if old_id in self.target:
            self.target[holder.id] = self.target.pop(old_id)
        for partition in holder.held:
            self._holders[partition] = holder.id
        return holder

    def _reporting(self, beat: Beat) -> ConsumerMember:
        if beat.instance is not None:
            holder = self._static.get(beat.instance)
            if holder is None:
                raise UnknownMember(f"no member has the instance id {beat.instance!r}")
            if holder != beat.member:
                raise FencedInstance(f"{beat.instance!r} belongs to a newer member")
        member = self._members.get(beat.member)
        if member is None:
            raise UnknownMember(f"{beat.member!r} is not a member")
        if beat.epoch == member.epoch:
            return member
        # The answer with a new epoch may have been lost; the member then owns no more than its previous
        # assignment.
        missed_answer = beat.epoch == member.previous_epoch and (
            beat.owned is not None and beat.owned <= member.assigned
        )
        if not missed_answer or member.is_away:
            raise FencedMemberEpoch(f"the member is in epoch {member.epoch}, not {beat.epoch}")
        return member

    def _leave(self, beat: Beat, now: float) -> BeatAnswer:
        member = self.holder(beat.instance) if beat.instance is not None else self.get(beat.member)
        if member is None:
            raise UnknownMember(f"{beat.member!r} is not a member")
        if member.id != beat.member:
            raise FencedInstance(f"{beat.instance!r} belongs to a newer member")
        if beat.epoch == LEAVING_FOR_A_WHILE:
            self._release(member)
            member.rest()
            self._hold(member)
            member.expires_at = now + self.rules.session_seconds
            self._wake(member.expires_at)
        else:
            self.remove(member)
        return BeatAnswer(member=beat.member, epoch=beat.epoch)

    def remove(self, member: ConsumerMember) -> None:
        self._release(member)
        del self._members[member.id]
        self._resolved.pop(member.id, None)
        self.target.pop(member.id, None)
        if member.instance is not None and self._static.get(member.instance) == member.id:
            del self._static[member.instance]
        self.epoch += 1

    def _resolve(self, topics: TopicView, changed: ConsumerMember | None) -> None:
        """Resolve subscriptions to topics; a change of topics increases the group's epoch."""
        if topics is not self._topics:
            self._topics = topics
            found = {member.id: topics.resolved(member.topics, member.pattern) for member in self}
            if any(self._resolved.get(member, resolved) != resolved for member, resolved in found.items()):
                self.epoch += 1
            self._resolved = found
        elif changed is not None:
            self._resolved[changed.id] = topics.resolved(changed.topics, changed.pattern)

    def _assign(self) -> None:
        subscribers = {
            member.id: Subscriber(
                topics=frozenset(self._resolved[member.id]),
                current=self.target.get(member.id, NOTHING),
                instance=member.instance,
            )
            for member in self
        }
        self.target = ASSIGNORS[self.assignor](subscribers, self.subscribed_sizes())
        self.target_epoch = self.epoch

    def _reconcile(self, member: ConsumerMember, owned: frozenset[PartitionId] | None, now: float) -> None:
        target = self.target.get(member.id, NOTHING)
        taken = {each for each in target if self._holders.get(each, member.id) != member.id}
        held = member.held
        member.reconcile(target, self.target_epoch, owned, taken, now)
        if member.held != held:
            for partition in held:
                self._holders.pop(partition, None)
            self._hold(member)

    def _hold(self, member: ConsumerMember) -> None:
        for partition in member.held:
            self._holders[partition] = member.id

    def _release(self, member: ConsumerMember) -> None:
        for partition in member.held:
            self._holders.pop(partition, None)

    def _wake(self, at: float) -> None:
        self.wake_at = min(self.wake_at, at)


def _wrong_epoch(member: ConsumerMember, why: str) -> MembershipError:
    """The error in the terms of the member's protocol."""
    return IllegalGeneration(why) if member.guest else StaleMemberEpoch(why)


def check_beat(beat: Beat) -> None:
    """Raises if a heartbeat is invalid, independent of any group."""
    if beat.assignor and beat.assignor not in ASSIGNORS:
        raise UnsupportedAssignor(f"there is no assignor {beat.assignor!r}; there are {', '.join(ASSIGNORS)}")
    if beat.epoch == LEAVING_FOR_A_WHILE and beat.instance is None:
        raise BadRequest("only a static member can leave temporarily")
    if beat.epoch < LEAVING_FOR_A_WHILE:
        raise BadRequest(f"there is no epoch {beat.epoch}")
    if beat.epoch == JOINING:
        if beat.owned:
            raise BadRequest("a member that joins must not own partitions")
        if beat.topics is None and beat.pattern is None:
            raise BadRequest("a member that joins must send its subscription, which may be empty")
