"""Groups of every kind in one form: classic, consumer, streams and share groups."""

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, NamedTuple

from posthouse.broker.broker import Broker
from posthouse.broker.groups.descriptions import GroupKind
from posthouse.broker.groups.offsets import CommittedOffset
from posthouse.broker.groups.streams import StreamsGroup
from posthouse.broker.groups.streams_member import StreamsMember
from posthouse.broker.protocol_members import ProtocolMember
from posthouse.broker.subscriptions.partition import SubscribedPartition
from posthouse.model.errors import NotCoordinator, UnknownGroup
from posthouse.model.ids import GroupId, PartitionId, TopicId
from posthouse.protocols.admin.turns import in_turns
from posthouse.storage.bounds import Bounds

_EMPTY: Final = "empty"
_STABLE: Final = "stable"


class NamedPlace(NamedTuple):
    """A tuple, and not a dataclass: a group may have tens of thousands of them in a set, and a dataclass is
    hashed and compared in Python, which takes five times as long."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    id: str
    instance: str | None
    client: str
    host: str
    topics: frozenset[str]
    """Subscribed to, as far as the broker can tell."""
    assigned: frozenset[NamedPlace]
    """Empty for members of share groups, which read all partitions of their topics, and for those that share
    out partitions among themselves, unknown to the broker."""
    follows_resets: bool = False
    """It goes on where its group is reset to. Others would commit over that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    id: GroupId
    kind: GroupKind
    state: str
    assignor: str
    members: tuple[GroupMember, ...]

    @property
    def readers(self) -> dict[NamedPlace, str]:
        return {place: member.id for member in self.members for place in member.assigned}


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedProgress:
    """How far a group has read a partition."""

    place: NamedPlace
    start: int
    end: int
    committed: int | None
    """Of a share group: below it everything is acknowledged."""
    lag: int | None
    committed_ms: int | None = None
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    partitions: int
    """With a committed offset."""
    offsets: int
    """Still to be read."""
    ends: int
    """The sum of the ends of these partitions."""


class GroupViews:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def refresh(self, name: str) -> None:
        """Before the group is looked at: another broker may have committed some of its offsets."""
        await self._broker.groups.offsets.refresh(GroupId(name))

    def names(self) -> list[str]:
        """Also of groups that have only members so far."""
        known = [*(each.id for each in self._broker.groups.listed()), *self._broker.subscriptions]
        return list(dict.fromkeys([*known, *self._broker.protocol_members.groups(leases=True)]))

    def get(self, name: str) -> Group:
        """Raises UnknownGroup."""
        id = GroupId(name)
        if id in self._broker.subscriptions:
            return self._share(id)
        if id not in self._broker.groups:
            if self._broker.protocol_members.of(id):
                return self._share(id)
            raise UnknownGroup(f"there is no group {name!r}")
        for described in (self._classic, self._consumer, self._streams):
            try:
                return self._with_others(described(id))
            except UnknownGroup:
                continue  # it is of another kind
        raise UnknownGroup(f"there is no group {name!r}")

    def find(self, name: str) -> Group | None:
        try:
            return self.get(name)
        except (UnknownGroup, NotCoordinator):  # deleted, or on its way to another broker
            return None

    def places(self, group: Group) -> list[PartitionId]:
        """Partitions with an offset."""
        if group.kind is GroupKind.SHARE:
            return list(self._broker.subscriptions.progress(group.id))
        return self._broker.groups.offsets.partitions(group.id)

    async def lag(self, group: Group) -> GroupLag:
        """Of all partitions."""
        partitions = lag = ends = 0
        async for progress in self.progress(group, self.places(group)):
            partitions += 1
            lag += progress.lag or 0
            ends += progress.end
        return GroupLag(partitions=partitions, offsets=lag, ends=ends)

    async def progress(
        self, group: Group, partitions: Iterable[PartitionId]
    ) -> AsyncIterator[SharedProgress]:
        """In turns: a group may have very many. Partitions that are deleted meanwhile are left out."""
        is_shared = group.kind is GroupKind.SHARE
        shared = self._broker.subscriptions.progress(group.id) if is_shared else {}
        async for partition in in_turns(partitions):
            topic = self._broker.topics.find_by_id(partition.topic)
            if topic is None or partition.index >= topic.partitions:
                continue
            place = NamedPlace(topic=topic.name, partition=partition.index)
            bounds = self._broker.bounds(topic, partition.index)
            if is_shared:
                yield _shared(shared.get(partition), place, bounds)
            else:
                yield _committed(self._broker.groups.offsets.get(group.id, partition), place, bounds)

    def _classic(self, id: GroupId) -> Group:
        group = self._broker.groups.describe(id)
        metadata = self._broker.groups.metadata
        members = []
        for each in group.members:
            subscription = metadata.subscription(group.protocol_type, each.metadata)
            members.append(
                GroupMember(
                    id=each.id,
                    instance=each.instance,
                    client=each.client.id,
                    host=each.client.host,
                    topics=frozenset() if subscription is None else subscription.topics,
                    assigned=frozenset(
                        NamedPlace(topic=place.topic, partition=place.index)
                        for place in metadata.assignment(each.assignment)
                    ),
                )
            )
        return Group(
            id=id,
            kind=GroupKind.CLASSIC,
            state=_text(group.state),
            assignor=group.protocol,
            members=tuple(members),
        )

    def _consumer(self, id: GroupId) -> Group:
        group = self._broker.groups.describe_consumer(id)
        members = tuple(
            GroupMember(
                id=each.id,
                instance=each.instance,
                client=each.client.id,
                host=each.client.host,
                topics=each.topics,
                assigned=self._named(each.assigned),
            )
            for each in group.members
        )
        return Group(
            id=id,
            kind=GroupKind.CONSUMER,
            state=_text(group.state),
            assignor=group.assignor,
            members=members,
        )

    def _streams(self, id: GroupId) -> Group:
        group = self._broker.groups.describe_streams(id)
        return Group(
            id=id,
            kind=GroupKind.STREAMS,
            state=_text(group.state),
            assignor="",
            members=tuple(_streams_member(group, each) for each in group),
        )

    def _share(self, id: GroupId) -> Group:
        self._broker.subscriptions.held.check(id)
        return self._with_others(Group(id=id, kind=GroupKind.SHARE, state=_EMPTY, assignor="", members=()))

    def _with_others(self, group: Group) -> Group:
        """With the members that protocols keep."""
        others = self._broker.protocol_members.of(group.id)
        if not others:
            return group
        return replace(
            group,
            state=_STABLE if group.state == _EMPTY else group.state,
            members=(*group.members, *map(_kept_by_protocol, others)),
        )

    def _named(self, partitions: Iterable[PartitionId]) -> frozenset[NamedPlace]:
        found = set()
        names: dict[TopicId, str | None] = {}
        """None where the topic was deleted. Most partitions are of few topics."""
        for partition in partitions:
            id = partition.topic
            if id not in names:
                topic = self._broker.topics.find_by_id(id)
                names[id] = None if topic is None else topic.name
            name = names[id]
            if name is not None:
                found.add(NamedPlace(name, partition.index))
        return frozenset(found)


def _kept_by_protocol(member: ProtocolMember) -> GroupMember:
    return GroupMember(
        id=member.id,
        instance=None,
        client=member.client,
        host=member.host,
        topics=member.topics,
        assigned=frozenset(),
        follows_resets=member.follows_resets,
    )


def _committed(committed: CommittedOffset | None, place: NamedPlace, bounds: Bounds) -> SharedProgress:
    if committed is None:
        return SharedProgress(place=place, start=bounds.start, end=bounds.end, committed=None, lag=None)
    return SharedProgress(
        place=place,
        start=bounds.start,
        end=bounds.end,
        committed=committed.offset,
        lag=max(bounds.end - committed.offset, 0),
        committed_ms=committed.committed_ms,
        metadata=committed.metadata,
    )


def _shared(subscribed: SubscribedPartition | None, place: NamedPlace, bounds: Bounds) -> SharedProgress:
    if subscribed is None:
        return SharedProgress(place=place, start=bounds.start, end=bounds.end, committed=None, lag=None)
    floor, settled_above = subscribed.progress.floor, subscribed.progress.settled_above
    lag = max(bounds.end - floor - settled_above, 0)
    return SharedProgress(place=place, start=bounds.start, end=bounds.end, committed=floor, lag=lag)


def _streams_member(group: StreamsGroup, member: StreamsMember) -> GroupMember:
    """The partitions of its active tasks: each reads the same partition of all topics of its subtopology."""
    read = {each.id: each.read for each in group.topology.subtopologies} if group.topology else {}
    return GroupMember(
        id=member.id,
        instance=None,
        client=member.client.id,
        host=member.client.host,
        topics=frozenset(topic for topics in read.values() for topic in topics),
        assigned=frozenset(
            NamedPlace(topic=topic, partition=task.partition)
            for task in member.assigned.active
            for topic in read.get(task.subtopology, ())
        ),
    )


def _text(state: Enum) -> str:
    return state.name.lower()
