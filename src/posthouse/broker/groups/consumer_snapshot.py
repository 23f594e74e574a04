"""What another broker needs to go on with a group whose partitions the broker assigns, as a value.

Members keep their epochs and partitions, also those that they are to give up: nobody else gets them before
they have confirmed it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from posthouse.broker.groups.consumer import ConsumerGroup, ConsumerRules
from posthouse.broker.groups.consumer_member import NOTHING, Beat, ConsumerMember, ConsumerMemberState, Guest
from posthouse.broker.groups.membership import MemberClient
from posthouse.broker.groups.patterns import TopicPattern
from posthouse.broker.groups.topic_view import TopicView
from posthouse.model.ids import InstanceId, MemberId, PartitionId, TopicId


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMemberSnapshot:
    id: MemberId
    instance: InstanceId | None
    client: MemberClient
    rack: str | None
    rebalance_seconds: float
    topics: frozenset[str]
    pattern: str | None
    assignor: str | None
    epoch: int
    previous_epoch: int
    progress: ConsumerMemberState
    target: frozenset[PartitionId]
    assigned: frozenset[PartitionId]
    giving_up: frozenset[PartitionId]
    given_in: Mapping[PartitionId, int]
    has_deadline: bool
    """Whether its rebalance timeout is running."""
    guest: Guest | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSnapshot:
    epoch: int
    target_epoch: int
    session_seconds: float
    """The longest of a member."""
    topics: Mapping[TopicId, int]
    """All that the members subscribe to, with their numbers of partitions."""
    members: tuple[ConsumerMemberSnapshot, ...]


def consumer_snapshot(group: ConsumerGroup) -> ConsumerSnapshot | None:
    """None if there are no members."""
    if group.is_empty:
        return None
    return ConsumerSnapshot(
        epoch=group.epoch,
        target_epoch=group.target_epoch,
        session_seconds=max(
            each.guest.session_seconds if each.guest else group.rules.session_seconds for each in group
        ),
        topics=group.subscribed_sizes(),
        members=tuple(_member(each, group.target.get(each.id, NOTHING)) for each in group),
    )


def _member(member: ConsumerMember, target: frozenset[PartitionId]) -> ConsumerMemberSnapshot:
    return ConsumerMemberSnapshot(
        id=member.id,
        instance=member.instance,
        client=member.client,
        rack=member.rack,
        rebalance_seconds=member.rebalance_seconds,
        topics=member.topics,
        pattern=member.pattern.text if member.pattern else None,
        assignor=member.assignor,
        epoch=member.epoch,
        previous_epoch=member.previous_epoch,
        progress=member.progress,
        target=target,
        assigned=member.assigned,
        giving_up=member.giving_up,
        given_in=member.given_in,
        has_deadline=not math.isinf(member.give_up_until),
        guest=member.guest,
    )


def resumed_consumer(
    snapshot: ConsumerSnapshot, rules: ConsumerRules, topics: TopicView, now: float
) -> ConsumerGroup:
    """Sessions and rebalance timeouts of all members begin now. Raises InvalidPattern."""
    # A setting that is smaller here refuses new members, not these.
    group = ConsumerGroup(replace(rules, max_size=max(rules.max_size, len(snapshot.members))))
    for each in snapshot.members:
        member = _resumed(each, now)
        group.adopt(member, topics, now)
        member.given_in = dict(each.given_in)
        group.target[member.id] = each.target
    group.rules = rules
    group.epoch = snapshot.epoch
    group.target_epoch = snapshot.target_epoch
    if group.subscribed_sizes() != snapshot.topics:
        group.epoch += 1  # no heartbeat has shown the broker before that topics have changed
    return group


def _resumed(stored: ConsumerMemberSnapshot, now: float) -> ConsumerMember:
    beat = Beat(
        member=stored.id,
        epoch=stored.epoch,
        instance=stored.instance,
        client=stored.client,
        rack=stored.rack,
        rebalance_seconds=stored.rebalance_seconds,
        topics=stored.topics,
        pattern=TopicPattern(stored.pattern) if stored.pattern else None,
        assignor=stored.assignor,
    )
    member = ConsumerMember(beat)
    member.update(beat)
    member.epoch = stored.epoch
    member.previous_epoch = stored.previous_epoch
    member.progress = stored.progress
    member.assigned = stored.assigned
    member.giving_up = stored.giving_up
    if stored.has_deadline:
        member.give_up_until = now + stored.rebalance_seconds
    member.guest = stored.guest
    return member
