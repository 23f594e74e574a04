"""The share groups of Kafka clients: members, heartbeats and fetch sessions over subscriptions.

Members and sessions are not stored: after a restart members are unknown and join again. Groups, their
settings and their progress are stored (`broker.subscriptions`).
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence

from posthouse.broker.groups.configs import GroupConfigs
from posthouse.broker.groups.descriptions import GroupKind, ListedGroup
from posthouse.broker.protocol_members import ProtocolMember
from posthouse.broker.subscriptions.subscriptions import Subscriptions
from posthouse.broker.subscriptions.wishes import Taken, Wish
from posthouse.model.errors import (
    GroupsClosed,
    InvalidGroupId,
    PosthouseError,
    UnknownGroup,
)
from posthouse.model.ids import GroupId, MemberId, PartitionId, TopicId
from posthouse.model.scopes import Scope, scope_of_group
from posthouse.model.topics import Topic
from posthouse.protocols.kafka.share_groups.group import (
    JOINING,
    LEAVING,
    ShareBeat,
    ShareBeatAnswer,
    ShareGroup,
    ShareRules,
    ShareState,
    check_beat,
)
from posthouse.protocols.kafka.share_groups.sessions import MemberConnection, ShareSession, ShareSessions

_CHECK_SECONDS = 0.1
"""Interval of the check for expired members and closed connections."""
_GOODBYE_SECONDS = 1.0
"""How long to wait for the last acknowledgements of a member that has left: librdkafka sends both at once,
over two connections."""
SHARE_PROTOCOL_TYPE = "share"


class ShareGroups:
    """Owned by the event loop. A source of members for other protocols."""

    leases = True

    def __init__(
        self,
        subscriptions: Subscriptions,
        configs: GroupConfigs,
        *,
        find_topic: Callable[[str], Topic | None],
        monotonic: Callable[[], float],
        is_other_group: Callable[[GroupId], bool],
        max_size: int,
    ) -> None:
        """`is_other_group`: the name belongs to a group of another kind."""
        self._subscriptions = subscriptions
        self._configs = configs
        self._find_topic = find_topic
        self._monotonic = monotonic
        self._is_other_group = is_other_group
        self._max_size = max_size
        self.sessions = ShareSessions()
        self._groups: dict[GroupId, ShareGroup] = {}
        """Created on first use: a loaded group has no members."""
        self._timer: asyncio.TimerHandle | None = None
        subscriptions.held.when_released(self._released)
        subscriptions.when_deleted(self._deleted)
        subscriptions.members.add(self)

    def _released(self, scope: Scope) -> None:
        """The groups of the scope move to another broker: members and sessions are unknown there."""
        for group_id in [each for each in self._groups if scope_of_group(each) == scope]:
            del self._groups[group_id]
        for session in [each for each in self.sessions if scope_of_group(each.group) == scope]:
            self.sessions.close(session)

    def _deleted(self, group_id: GroupId) -> None:
        self._groups.pop(group_id, None)
        self.sessions.close_group(group_id)

    def get(self, group_id: GroupId) -> ShareGroup:
        """Raises UnknownGroup, and NotCoordinator."""
        self._subscriptions.held.check(group_id)
        if group_id not in self._subscriptions:
            raise UnknownGroup(f"there is no share group {group_id!r}")
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = ShareGroup(self._max_size)
        return group

    def listed(self) -> list[ListedGroup]:
        return [
            ListedGroup(
                id=group_id,
                kind=GroupKind.SHARE,
                state=self.state(group_id),
                protocol_type=SHARE_PROTOCOL_TYPE,
            )
            for group_id in self._subscriptions
            if self._subscriptions.held.serves(group_id)
        ]

    # Members

    def members(self, group_id: GroupId) -> list[ProtocolMember]:
        return [
            ProtocolMember(
                id=member.id, client=member.client.id, host=member.client.host, topics=member.topics
            )
            for member in self._groups.get(group_id, ())
        ]

    def groups(self) -> list[GroupId]:
        return [group_id for group_id, group in self._groups.items() if not group.is_empty]

    def others(self, group_id: GroupId) -> list[ProtocolMember]:
        """Members that other protocols keep."""
        return self._subscriptions.members.of(group_id, besides=self)

    def state(self, group_id: GroupId) -> ShareState:
        """Raises UnknownGroup, and NotCoordinator."""
        state = self.get(group_id).state
        return ShareState.STABLE if state is ShareState.EMPTY and self.others(group_id) else state

    async def beat(self, group_id: GroupId, beat: ShareBeat) -> ShareBeatAnswer:
        """A member joins, reports or leaves. A new group is stored before its first member joins."""
        self._check_open()
        _check_name(group_id)
        self._subscriptions.held.check(group_id)
        check_beat(beat)
        self._check_kind(group_id)
        if beat.epoch == JOINING:
            await self._create_missing(group_id)
        now = self._monotonic()
        rules = ShareRules.of(self._configs.get(group_id))
        answer = self.get(group_id).beat(beat, self._find_topic, now, rules)
        if beat.epoch in (JOINING, LEAVING):
            for session in self.sessions.of(group_id, beat.member):
                session.ends_at = math.inf if beat.epoch == JOINING else now + _GOODBYE_SECONDS
        if answer.assignment is not None:
            self._subscriptions.open(group_id, _partitions(answer.assignment))
        self._watch()
        return answer

    def _check_open(self) -> None:
        if self._subscriptions.is_closed:
            raise GroupsClosed("the broker is stopping")

    def _check_kind(self, group_id: GroupId) -> None:
        if self._is_other_group(group_id):
            raise UnknownGroup(f"the group {group_id!r} is not a share group")

    async def _create_missing(self, group_id: GroupId) -> None:
        try:
            await self._subscriptions.create(group_id)
        except PosthouseError:
            self._groups.pop(group_id, None)
            raise

    def tick(self) -> None:
        """Release leases of expired members and closed connections."""
        if self._subscriptions.is_closed:
            return
        now = self._monotonic()
        for session in self.sessions.over(now):
            self.end_session(session, count=False)
        for session in self.sessions.abandoned():
            self.end_session(session, count=True)
        for group_id, group in self._groups.items():
            for member in group.expired(now):
                group.remove(member)
                for session in self.sessions.of(group_id, member):
                    self.sessions.close(session)
                self._subscriptions.release(group_id, member, count=True)

    def _watch(self) -> None:
        """Keep ticking while there are members or sessions."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_CHECK_SECONDS, self._check)

    def _check(self) -> None:
        self._timer = None
        try:
            self.tick()
        finally:
            is_used = bool(self.sessions) or any(not group.is_empty for group in self._groups.values())
            if is_used and not self._subscriptions.is_closed:
                self._watch()

    # Sessions

    def open_session(self, group_id: GroupId, member: MemberId, connection: MemberConnection) -> ShareSession:
        self._check_open()
        self.get(group_id)
        session = self.sessions.open(group_id, member, connection)
        self._watch()
        return session

    def end_session(self, session: ShareSession, *, count: bool) -> None:
        """End the session and release its leases. Without `count`, they do not count as deliveries.

        If the member has other sessions, its leases on partitions of no session stay until the last one ends.
        """
        self.sessions.close(session)
        is_last = not self.sessions.of(session.group, session.member)
        self._subscriptions.release(
            session.group, session.member, None if is_last else session.partitions, count=count
        )

    async def fetch(
        self, session: ShareSession, wanted: Sequence[PartitionId], wish: Wish
    ) -> dict[PartitionId, Taken | PosthouseError]:
        """Lease records to the session's member. See `Subscriptions.fetch`."""
        return await self._subscriptions.fetch(
            session.group, session.member, wanted, wish, lambda: self._is_live(session)
        )

    def _is_live(self, session: ShareSession) -> bool:
        found = self.sessions.find(session.group, session.member, session.way)
        return found is session and math.isinf(session.ends_at)

    # What operators do

    def check_movable(self, group_id: GroupId) -> None:
        """Raises if the group has members that would not follow. It need not exist."""
        _check_name(group_id)
        self._subscriptions.held.check(group_id)
        self._check_kind(group_id)
        self._subscriptions.members.check_resettable(group_id)

    async def move(self, group_id: GroupId, offsets: Mapping[PartitionId, int]) -> None:
        """Reset the group to these offsets. A group that does not exist is created."""
        self.check_movable(group_id)
        if not offsets:
            return
        await self._create_missing(group_id)
        await self._subscriptions.reset(group_id, offsets)

    async def forget_topic(self, group_id: GroupId, topic: TopicId) -> bool:
        """Remove the group's progress in a topic, so that it begins anew. False if there is none."""
        self.check_empty(group_id)
        return await self._subscriptions.forget_topic(group_id, topic)

    def check_empty(self, group_id: GroupId) -> None:
        _check_name(group_id)
        self.get(group_id)
        self._subscriptions.members.check_none(group_id)

    async def delete(self, group_id: GroupId) -> None:
        self.check_empty(group_id)
        await self._subscriptions.delete(group_id)


def _partitions(assignment: Mapping[TopicId, int]) -> list[PartitionId]:
    return [PartitionId(topic, index) for topic, count in assignment.items() for index in range(count)]


def _check_name(group_id: GroupId) -> None:
    if not group_id:
        raise InvalidGroupId("a group must have a name")
