"""Online migration of a group between the classic and the consumer protocol: see `guests`.

It becomes a consumer group when the first member asks for that, and turns back when the last such member has
left.
"""

from posthouse.broker.groups.classic import ClassicGroup, ClassicRules
from posthouse.broker.groups.consumer import ConsumerGroup, ConsumerRules
from posthouse.broker.groups.consumer_member import Beat, ConsumerMember, Guest
from posthouse.broker.groups.guests import GUEST_PROTOCOL_TYPE
from posthouse.broker.groups.membership import JoinRequest
from posthouse.broker.groups.metadata import MemberMetadata
from posthouse.broker.groups.roster import Member
from posthouse.broker.groups.states import ClassicState
from posthouse.broker.groups.topic_view import TopicView
from posthouse.model.errors import InconsistentProtocol, RebalanceInProgress


def upgraded(
    classic: ClassicGroup, rules: ConsumerRules, metadata: MemberMetadata, topics: TopicView, now: float
) -> ConsumerGroup:
    """A consumer group in which the members keep their ids and partitions; waiting members have to join
    again.

    Raises InconsistentProtocol, and changes nothing, if a member's metadata cannot be decoded.
    """
    members = [_as_guest(classic, member, metadata, topics) for member in classic.members]
    group = ConsumerGroup(rules)
    group.epoch = group.target_epoch = max(1, classic.generation)
    for member in members:
        group.adopt(member, topics, now)
    for member_id, until in classic.members.expected.items():
        group.expect(member_id, until)
    changed = RebalanceInProgress("the broker takes over the group")
    for waiting in classic.members:
        waiting.answer_join(changed)
        waiting.answer_sync(changed)
    return group


def _as_guest(
    classic: ClassicGroup, member: Member, metadata: MemberMetadata, topics: TopicView
) -> ConsumerMember:
    protocol = member.protocols[0]
    subscription = metadata.subscription(classic.protocol_type or "", protocol.metadata)
    if subscription is None:
        raise InconsistentProtocol("the members of this group assign its partitions themselves")
    beat = Beat(
        member=member.id,
        epoch=classic.generation,
        instance=member.instance,
        client=member.client,
        rebalance_seconds=member.rebalance_seconds,
        topics=subscription.topics,
    )
    guest = ConsumerMember(beat)
    guest.update(beat)
    guest.epoch = guest.previous_epoch = max(1, classic.generation)
    guest.guest = Guest(protocols=member.protocols, session_seconds=member.session_seconds)
    guest.assigned = topics.ids(metadata.assignment(member.assignment))
    return guest


def downgraded(
    group: ConsumerGroup, rules: ClassicRules, metadata: MemberMetadata, topics: TopicView, now: float
) -> ClassicGroup:
    """Only guests are left: they rebalance, elect a leader, and assign partitions themselves."""
    classic = ClassicGroup(rules)
    for guest in group:
        assert guest.guest is not None
        member = Member(
            guest.id,
            JoinRequest(
                member=guest.id,
                instance=guest.instance,
                client=guest.client,
                protocol_type=GUEST_PROTOCOL_TYPE,
                protocols=guest.guest.protocols,
                session_seconds=guest.guest.session_seconds,
                rebalance_seconds=guest.rebalance_seconds,
            ),
        )
        member.assignment = metadata.encoded_assignment(topics.named(guest.assigned))
        member.seen(now)
        classic.members.add(member)
    classic.members.expected |= group.expected
    classic.protocol_type = GUEST_PROTOCOL_TYPE
    classic.protocol = classic.members.elected_protocol()
    # Members in this generation are asked to join; those behind it must join, and lose their partitions.
    classic.generation = max(member.epoch for member in group)
    classic.state = ClassicState.STABLE
    classic.rebalance(now)
    classic.tick(now)
    return classic
