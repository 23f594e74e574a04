"""Descriptions of groups for admin tools."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from posthouse.broker.groups.classic import ClassicGroup
from posthouse.broker.groups.consumer import ConsumerGroup, ConsumerState
from posthouse.broker.groups.guests import GUEST_PROTOCOL_TYPE
from posthouse.broker.groups.membership import MemberClient
from posthouse.broker.groups.metadata import MemberMetadata
from posthouse.broker.groups.registry import Group
from posthouse.broker.groups.states import ClassicState
from posthouse.broker.groups.streams import StreamsGroup
from posthouse.broker.protocol_members import ProtocolMember
from posthouse.model.ids import GroupId, InstanceId, MemberId, PartitionId

_STREAMS_PROTOCOL_TYPE = "streams"


class GroupKind(Enum):
    CLASSIC = auto()
    """The members assign the partitions."""
    CONSUMER = auto()
    """The broker assigns the partitions."""
    STREAMS = auto()
    """The broker assigns the tasks of a Kafka Streams application."""
    SHARE = auto()
    """Records are leased to the member that asks first. See `broker.subscriptions`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroup:
    id: GroupId
    kind: GroupKind
    state: Enum
    """A state of the machine of this kind of group."""
    protocol_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedMember:
    id: MemberId
    instance: InstanceId | None
    client: MemberClient
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    state: ClassicState
    protocol_type: str
    protocol: str
    members: tuple[DescribedMember, ...]
    others: tuple[ProtocolMember, ...] = ()
    """Members that a protocol keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedConsumer:
    id: MemberId
    instance: InstanceId | None
    rack: str | None
    client: MemberClient
    epoch: int
    topics: frozenset[str]
    pattern: str | None
    is_classic: bool
    """The member speaks the classic protocol in a consumer group."""
    assigned: frozenset[PartitionId]
    target: frozenset[PartitionId]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedConsumerGroup:
    state: ConsumerState
    epoch: int
    target_epoch: int
    assignor: str
    members: tuple[DescribedConsumer, ...]


def listed(group_id: GroupId, group: Group | None, *, has_others: bool = False) -> ListedGroup:
    """Without a group, only its offsets are left, or members that a protocol keeps. `has_others`: it has such
    members."""
    if isinstance(group, StreamsGroup):
        return ListedGroup(
            id=group_id, kind=GroupKind.STREAMS, state=group.state, protocol_type=_STREAMS_PROTOCOL_TYPE
        )
    if isinstance(group, ConsumerGroup):
        return ListedGroup(
            id=group_id, kind=GroupKind.CONSUMER, state=group.state, protocol_type=GUEST_PROTOCOL_TYPE
        )
    return ListedGroup(
        id=group_id,
        kind=GroupKind.CLASSIC,
        state=_without_own(has_others=has_others) if group is None else group.state,
        protocol_type="" if group is None else group.protocol_type or "",
    )


def _without_own(*, has_others: bool) -> ClassicState:
    return ClassicState.STABLE if has_others else ClassicState.EMPTY


def describe_classic(group: ClassicGroup | None, others: Sequence[ProtocolMember]) -> DescribedGroup:
    """While a group is not stable, its members have no valid assignment."""
    if group is None:
        state = _without_own(has_others=bool(others))
        return DescribedGroup(state=state, protocol_type="", protocol="", members=(), others=tuple(others))
    settled = group.state is ClassicState.STABLE
    return DescribedGroup(
        state=group.state,
        protocol_type=group.protocol_type or "",
        protocol=(group.protocol or "") if settled else "",
        members=tuple(
            DescribedMember(
                id=member.id,
                instance=member.instance,
                client=member.client,
                metadata=member.metadata(group.protocol) if settled else b"",
                assignment=member.assignment if settled else b"",
            )
            for member in group.members
        ),
        others=tuple(others),
    )


def describe_consumer(group: ConsumerGroup) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(
        state=group.state,
        epoch=group.epoch,
        target_epoch=group.target_epoch,
        assignor=group.assignor,
        members=tuple(
            DescribedConsumer(
                id=member.id,
                instance=member.instance,
                rack=member.rack,
                client=member.client,
                epoch=member.epoch,
                topics=member.topics,
                pattern=member.pattern.text if member.pattern else None,
                is_classic=member.guest is not None,
                assigned=member.assigned,
                target=group.target.get(member.id, frozenset()),
            )
            for member in group
        ),
    )


def classic_subscription(group: ClassicGroup, metadata: MemberMetadata) -> frozenset[str] | None:
    """All topics of the members' subscriptions; None if one of them cannot be decoded."""
    found: set[str] = set()
    for member in group.members:
        for offered in member.protocols:
            subscription = metadata.subscription(group.protocol_type or "", offered.metadata)
            if subscription is None:
                return None
            found |= subscription.topics
    return frozenset(found)
