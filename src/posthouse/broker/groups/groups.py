"""The consumer groups of a broker: the interface to groups and their offsets.

The groups themselves are plain objects; this module gives them time and turns their replies into futures.
"""

import asyncio
import uuid
from collections.abc import Callable, Container, Iterable, Sequence
from typing import TypeVar

from posthouse.broker.groups.classic import ClassicGroup
from posthouse.broker.groups.committing import GroupOffsets
from posthouse.broker.groups.configs import GroupConfigs
from posthouse.broker.groups.consumer import ConsumerGroup, check_beat
from posthouse.broker.groups.consumer_member import JOINING, Beat, BeatAnswer
from posthouse.broker.groups.descriptions import (
    DescribedConsumerGroup,
    DescribedGroup,
    ListedGroup,
    classic_subscription,
    describe_classic,
    describe_consumer,
    listed,
)
from posthouse.broker.groups.guests import Guests
from posthouse.broker.groups.handover import GroupHandover
from posthouse.broker.groups.loading import GroupLoading
from posthouse.broker.groups.membership import (
    NO_GENERATION,
    Joined,
    JoinRequest,
    Leaving,
    MemberIdentity,
    Reply,
    Synced,
    SyncRequest,
)
from posthouse.broker.groups.metadata import MemberMetadata
from posthouse.broker.groups.migration import downgraded, upgraded
from posthouse.broker.groups.registry import Group, Registry
from posthouse.broker.groups.rules import GroupRules
from posthouse.broker.groups.streams import StreamsGroup
from posthouse.broker.groups.streams_answers import StreamsAnswer
from posthouse.broker.groups.streams_member import JOINING as STREAMS_JOINING
from posthouse.broker.groups.streams_member import StreamsBeat, check_streams_beat
from posthouse.broker.groups.topic_view import TopicView
from posthouse.broker.held_scopes import HeldScopes
from posthouse.broker.protocol_members import ProtocolMember, ProtocolMembers
from posthouse.broker.topics import Topics
from posthouse.model.clock import Clock
from posthouse.model.errors import (
    GroupNotEmpty,
    GroupsClosed,
    GroupSubscribed,
    InconsistentProtocol,
    InvalidGroupId,
    MembershipError,
    PosthouseError,
    UnknownGroup,
    UnknownMember,
)
from posthouse.model.ids import GroupId, MemberId, PartitionId, TopicId
from posthouse.settings import Settings
from posthouse.storage.contract import Storage

ResultT = TypeVar("ResultT")


class Groups:
    """Owned by the event loop."""

    def __init__(
        self,
        storage: Storage,
        topics: Topics,
        settings: Settings,
        clock: Clock,
        metadata: MemberMetadata,
        configs: GroupConfigs,
        held: HeldScopes,
        *,
        unstable: Callable[[GroupId, PartitionId], bool],
        share_groups: Container[GroupId],
        protocol_members: ProtocolMembers,
    ) -> None:
        """`unstable` tells whether an open transaction is about to change a committed offset."""
        self._clock = clock
        self._held = held
        self._registry = Registry(storage, clock, self._settled)
        self.offsets = GroupOffsets(
            storage,
            self._registry,
            settings,
            clock,
            held,
            unstable=unstable,
            share_groups=share_groups,
            protocol_members=protocol_members,
        )
        self._protocol_members = protocol_members
        self._topics = topics
        self.metadata = metadata
        self._rules = GroupRules(settings, configs, metadata, _new_member_id)
        handover = GroupHandover(storage, self._registry, self._rules, clock, self._topics_now)
        self.loading = GroupLoading(storage, self._registry, self.offsets, self._rules, held, handover)
        self._view: TopicView | None = None
        self._closed = storage.shared_state is None
        """In a broker that is alone until all groups are loaded, and in every broker while it stops."""

    def __contains__(self, group_id: GroupId) -> bool:
        return group_id in self._registry or self.offsets.has(group_id) or bool(self._others(group_id))

    def _others(self, group_id: GroupId) -> list[ProtocolMember]:
        """Members that commit offsets, and that a protocol keeps."""
        if self.offsets.is_share_group(group_id):
            return []  # they cannot
        return self._protocol_members.committing(group_id)

    def has_members(self, group_id: GroupId) -> bool:
        group = self._registry.get(group_id)
        return (group is not None and not group.is_empty) or bool(self._others(group_id))

    def load_all(self) -> None:
        """In a broker that is alone."""
        self._closed = False
        self.loading.load_all()

    def close(self) -> None:
        """Answer all waiting members, and refuse new requests."""
        self._closed = True
        self._registry.close()

    def topics_changed(self) -> None:
        self._view = None

    async def forget_topics(self, topics: Sequence[TopicId]) -> None:
        self.topics_changed()
        await self.offsets.forget_topics(topics)

    async def expire(self) -> None:
        await self.offsets.expire()

    def join(self, group_id: GroupId, request: JoinRequest) -> "asyncio.Future[Joined | PosthouseError]":
        """The future itself never fails: the caller must tell a refusal from a bug."""

        def start(reply: Reply[Joined]) -> None:
            self._rules.check_session(request)
            if self.offsets.is_share_group(group_id):
                raise InconsistentProtocol(f"the group {group_id!r} is a share group")
            group = self._registry.get(group_id)
            if isinstance(group, StreamsGroup) and not group.is_empty:
                raise InconsistentProtocol(f"the group {group_id!r} is a streams group")
            if (
                group is None
                or isinstance(group, StreamsGroup)
                or (isinstance(group, ConsumerGroup) and group.is_empty)
            ):
                if request.member is not None:
                    raise UnknownMember(f"{request.member!r} is not a member")
                group = ClassicGroup(self._rules.classic)
                self._registry.put(group_id, group)
            if isinstance(group, ConsumerGroup):
                reply(self._guests(group).join(request, self._topics_now(), self._clock.monotonic()))
            else:
                group.join(request, self._clock.monotonic(), reply)

        return self._asked(group_id, start)

    def sync(self, group_id: GroupId, request: SyncRequest) -> "asyncio.Future[Synced | PosthouseError]":
        def start(reply: Reply[Synced]) -> None:
            group = self._known_classic(group_id)
            if isinstance(group, ConsumerGroup):
                reply(self._guests(group).sync(request, self._topics_now(), self._clock.monotonic()))
            else:
                group.sync(request, self._clock.monotonic(), reply)

        return self._asked(group_id, start)

    def heartbeat(self, group_id: GroupId, identity: MemberIdentity) -> None:
        self._check_usable(group_id)
        group = self._known_classic(group_id)
        members = self._guests(group) if isinstance(group, ConsumerGroup) else group
        members.heartbeat(identity, self._clock.monotonic())
        self._registry.touched(group_id)

    def leave(self, group_id: GroupId, leaving: Sequence[Leaving]) -> list[MembershipError | None]:
        """Remove members. One result per member: None if it has left."""
        self._check_usable(group_id)
        try:
            group = self._known_classic(group_id)
            if isinstance(group, ConsumerGroup):
                return self._guests(group).leave(leaving)
            return group.leave(leaving, self._clock.monotonic())
        finally:
            self._registry.touched(group_id)

    def beat(self, group_id: GroupId, beat: Beat) -> BeatAnswer:
        """Heartbeat of a member of a consumer group: joins, reports or leaves."""
        self._check_usable(group_id)
        check_beat(beat)
        self.offsets.check_kind(group_id)
        group = self._registry.get(group_id)
        if isinstance(group, StreamsGroup):
            raise UnknownGroup(f"the group {group_id!r} is a streams group")
        if not isinstance(group, ConsumerGroup):
            if beat.epoch != JOINING:
                raise UnknownMember(f"{beat.member!r} is not a member")
            group = self._taken_over(group_id, group)
            self._registry.put(group_id, group)
        group.rules = self._rules.consumer(group_id)
        try:
            return group.beat(beat, self._topics_now(), self._clock.monotonic())
        finally:
            self._registry.touched(group_id)

    def beat_streams(self, group_id: GroupId, beat: StreamsBeat) -> StreamsAnswer:
        """Heartbeat of a member of a Kafka Streams application: joins, reports or leaves."""
        self._check_usable(group_id)
        check_streams_beat(beat)
        self.offsets.check_kind(group_id)
        group = self._registry.get(group_id)
        if not isinstance(group, StreamsGroup):
            if isinstance(group, ConsumerGroup) or (group is not None and not group.is_empty):
                raise UnknownGroup(f"the group {group_id!r} is not a streams group")
            if beat.epoch != STREAMS_JOINING:
                raise UnknownMember(f"{beat.member!r} is not a member")
            group = StreamsGroup(self._rules.streams(group_id))
        group.rules = self._rules.streams(group_id)
        topology = group.topology
        answer = group.beat(beat, self._topics_now(), self._clock.monotonic())
        if self._registry.get(group_id) is not group:
            self._registry.put(group_id, group)
        if group.topology != topology:
            self._registry.keep_topology(group_id, group)
        self._registry.touched(group_id)
        return answer

    def _taken_over(self, group_id: GroupId, group: ClassicGroup | None) -> ConsumerGroup:
        rules = self._rules.consumer(group_id)
        if group is None or group.is_empty:
            return ConsumerGroup(rules)
        now = self._clock.monotonic()
        return upgraded(group, rules, self.metadata, self._topics_now(), now)

    def _settled(self, group: Group) -> Group:
        if isinstance(group, ConsumerGroup) and group.has_only_guests:
            now = self._clock.monotonic()
            return downgraded(group, self._rules.classic, self.metadata, self._topics_now(), now)
        return group

    def _guests(self, group: ConsumerGroup) -> Guests:
        return Guests(group, self.metadata, _new_member_id)

    def _topics_now(self) -> TopicView:
        if self._view is None:
            self._view = TopicView(self._topics)
        return self._view

    def check_fetch(self, group_id: GroupId, identity: MemberIdentity) -> None:
        """Raises if the member's epoch is stale, or the group cannot have offsets."""
        self.offsets.check_kind(group_id)
        group = self._registry.get(group_id)
        if isinstance(group, ConsumerGroup | StreamsGroup) and (
            identity.member and identity.generation != NO_GENERATION
        ):
            group.check_epoch(identity)

    def listed(self) -> list[ListedGroup]:
        groups = {group_id: listed(group_id, group) for group_id, group in self._registry}
        for group_id in self.offsets.groups():
            if group_id not in groups:
                groups[group_id] = listed(group_id, None)
        for group_id in self._protocol_members.groups(leases=False):
            if not self.offsets.is_share_group(group_id):
                groups[group_id] = listed(group_id, self._shown(group_id), has_others=True)
        if self._held.has_all:
            return list(groups.values())
        # Those of a scope that is being given up are still there.
        return [group for group_id, group in groups.items() if self._held.serves(group_id)]

    @property
    def is_loading(self) -> bool:
        """Whether groups of this broker may be missing in the list at the moment."""
        return self._held.is_loading

    def member_count(self, group_id: GroupId) -> int:
        """Without those that a protocol keeps."""
        group = self._registry.get(group_id)
        if group is None:
            return 0
        return len(group.members) if isinstance(group, ClassicGroup) else sum(1 for _ in group)

    def _shown(self, group_id: GroupId) -> Group | None:
        """The group as it is described. None while all of its members are kept by a protocol."""
        group = self._registry.get(group_id)
        is_left = group is not None and group.is_empty and bool(self._others(group_id))
        return None if is_left else group

    def describe(self, group_id: GroupId) -> DescribedGroup:
        """The description of a classic group; raises UnknownGroup for others, and NotCoordinator."""
        self._held.check(group_id)
        group = self._shown(group_id)
        others = self._others(group_id)
        if isinstance(group, ClassicGroup) or (group is None and (others or self.offsets.has(group_id))):
            return describe_classic(group, others)
        raise UnknownGroup(f"there is no classic group {group_id!r}")

    def describe_consumer(self, group_id: GroupId) -> DescribedConsumerGroup:
        self._held.check(group_id)
        group = self._shown(group_id)
        if isinstance(group, ConsumerGroup):
            return describe_consumer(group)
        raise UnknownGroup(f"there is no group {group_id!r} whose partitions the broker assigns")

    def describe_streams(self, group_id: GroupId) -> StreamsGroup:
        self._held.check(group_id)
        group = self._shown(group_id)
        if isinstance(group, StreamsGroup):
            return group
        raise UnknownGroup(f"there is no streams group {group_id!r}")

    async def delete_offsets(
        self, group_id: GroupId, partitions: Sequence[PartitionId]
    ) -> list[PosthouseError | None]:
        """One result for each. Offsets of partitions that members subscribe to are kept."""
        with self._held.used(group_id):
            await self.offsets.refresh(group_id)
            group = self._registry.get(group_id)
            if group is None and not self.offsets.has(group_id):
                raise UnknownGroup(f"there is no group {group_id!r}")
            others = self._others(group_id)
            in_use = self._ids_of({name for member in others for name in member.topics})
            if group is not None and not group.is_empty:
                in_use |= self._topics_read(group_id, group)
            free = [partition for partition in partitions if partition.topic not in in_use]
            await self.offsets.remove(group_id, free)
        return [
            GroupSubscribed(f"the group {group_id!r} reads it") if partition.topic in in_use else None
            for partition in partitions
        ]

    def _topics_read(self, group_id: GroupId, group: Group) -> frozenset[TopicId]:
        if isinstance(group, ConsumerGroup | StreamsGroup):
            return group.subscribed_topics()
        names = classic_subscription(group, self.metadata)
        if names is None:
            raise GroupNotEmpty(f"the group {group_id!r} has members")
        return self._ids_of(names)

    def _ids_of(self, names: Iterable[str]) -> frozenset[TopicId]:
        found = (self._topics.find(name) for name in names)
        return frozenset(topic.id for topic in found if topic is not None)

    async def delete(self, group_id: GroupId) -> None:
        with self._held.used(group_id):
            await self.offsets.refresh(group_id)
            self._protocol_members.check_none(group_id)
            group = self._registry.get(group_id)
            if group is None and not self.offsets.has(group_id):
                raise UnknownGroup(f"there is no group {group_id!r}")
            if group is not None:
                if not group.is_empty:
                    raise GroupNotEmpty(f"the group {group_id!r} has members")
                group.delete()
            await self.offsets.forget_group(group_id)

    def _asked(
        self, group_id: GroupId, start: Callable[[Reply[ResultT]], None]
    ) -> "asyncio.Future[ResultT | PosthouseError]":
        answered: asyncio.Future[ResultT | PosthouseError] = asyncio.get_running_loop().create_future()

        def reply(result: ResultT | PosthouseError) -> None:
            if not answered.done():
                answered.set_result(result)

        try:
            self._check_usable(group_id)
        except PosthouseError as error:
            reply(error)
            return answered
        try:
            start(reply)
        except PosthouseError as error:
            reply(error)
        self._registry.touched(group_id)
        return answered

    def _known_classic(self, group_id: GroupId) -> ClassicGroup | ConsumerGroup:
        group = self._registry.get(group_id)
        if group is None or isinstance(group, StreamsGroup):
            raise UnknownMember(f"the group {group_id!r} has no members")
        return group

    def _check_usable(self, group_id: GroupId) -> None:
        if self._closed:
            raise GroupsClosed("the broker is stopping, or has not loaded its groups yet")
        if not self._held.has_all:
            self._held.check(group_id)
        if not group_id:
            # Very old clients keep offsets under an empty name; members need a name.
            raise InvalidGroupId("a group must have a name")


def _new_member_id(prefix: str) -> MemberId:
    return MemberId(f"{prefix}-{uuid.uuid4()}")
