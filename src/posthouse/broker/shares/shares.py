"""The share groups of a broker: the one door to their members, sessions, records and progress.

Members and sessions are not stored: after a restart members find themselves unknown and join again. Groups,
their settings and their progress are.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence

from posthouse.broker.groups.configs import GroupConfigs
from posthouse.broker.groups.descriptions import GroupKind, ListedGroup
from posthouse.broker.housekeeping import Housekeeping
from posthouse.broker.shares.fetching import Fetching, Taken, WaitForRecords, Wish
from posthouse.broker.shares.group import (
    JOINING,
    LEAVING,
    ShareBeat,
    ShareBeatAnswer,
    ShareGroup,
    ShareRules,
    check_beat,
)
from posthouse.broker.shares.leases import Acknowledgement, Verdict
from posthouse.broker.shares.partition import SharePartition
from posthouse.broker.shares.partitions import SharePartitions
from posthouse.broker.shares.sessions import Connection, ShareSession, ShareSessions
from posthouse.broker.topics import Topics
from posthouse.model.clock import Clock
from posthouse.model.errors import (
    GroupNotEmpty,
    GroupsClosed,
    InvalidGroupId,
    NotLeased,
    PosthouseError,
    UnknownGroup,
    UnknownPartition,
)
from posthouse.model.ids import GroupId, MemberId, PartitionId, TopicId
from posthouse.settings import Settings
from posthouse.storage.contract import Storage
from posthouse.storage.partition_view import PartitionView

_CHECK_SECONDS = 0.1
"""How often leases, members and connections that are over are looked for."""
_GOODBYE_SECONDS = 1.0
"""How long the last acknowledgements of a member that has left are waited for: librdkafka sends both at once,
over two connections."""
SHARE_PROTOCOL_TYPE = "share"


class Shares:
    """Owned by the event loop."""

    def __init__(
        self,
        storage: Storage,
        topics: Topics,
        settings: Settings,
        clock: Clock,
        configs: GroupConfigs,
        groups: dict[GroupId, ShareGroup],
        wait_for_records: WaitForRecords,
        is_stream_group: Callable[[GroupId], bool],
    ) -> None:
        """`groups` is empty: it is passed in because stream groups must not take the names in it."""
        self._view: PartitionView = storage
        self._topics = topics
        self._clock = clock
        self._max_size = settings.group_max_size
        self._is_stream_group = is_stream_group
        self.configs = configs
        self.sessions = ShareSessions()
        self._partitions = SharePartitions(storage, clock, self.configs)
        self._fetching = Fetching(
            storage, clock, self._partitions, self.configs, wait_for_records, self._leased
        )
        self._groups = groups
        self._leasing: dict[SharePartition, tuple[GroupId, PartitionId]] = {}
        self._opening: set[asyncio.Task[object]] = set()
        self._timer = Housekeeping([self.tick], _CHECK_SECONDS)
        self._closed = False

    def load(self) -> None:
        self._partitions.load()
        self._groups.update({group_id: ShareGroup(self._max_size) for group_id in self._partitions.groups()})
        self._timer.start()

    def stop_leasing(self) -> None:
        """No more leases and members; acknowledgements are still taken, and nobody counts as lost."""
        self._closed = True

    async def close(self) -> None:
        self.stop_leasing()
        await self._timer.stop()
        for opening in self._opening:
            opening.cancel()
        await self._partitions.close()

    def __contains__(self, group_id: GroupId) -> bool:
        return group_id in self._groups

    def get(self, group_id: GroupId) -> ShareGroup:
        group = self._groups.get(group_id)
        if group is None:
            raise UnknownGroup(f"there is no share group {group_id!r}")
        return group

    def is_read(self, partition: PartitionId) -> bool:
        """Whether any group has progress there."""
        return any(self._partitions.find(group_id, partition) is not None for group_id in self._groups)

    def listed(self) -> list[ListedGroup]:
        return [
            ListedGroup(
                id=group_id, kind=GroupKind.SHARE, state=group.state, protocol_type=SHARE_PROTOCOL_TYPE
            )
            for group_id, group in self._groups.items()
        ]

    # Members

    async def beat(self, group_id: GroupId, beat: ShareBeat) -> ShareBeatAnswer:
        """A member joins, reports or leaves. A new group is stored before its first member is in it."""
        if self._closed:
            raise GroupsClosed("the broker is stopping")
        _check_name(group_id)
        check_beat(beat)
        self._check_kind(group_id)
        if beat.epoch == JOINING:
            await self._create_missing(group_id)
        now = self._clock.monotonic()
        rules = ShareRules.of(self.configs.get(group_id))
        answer = self.get(group_id).beat(beat, self._topics.find, now, rules)
        session = self.sessions.find(group_id, beat.member)
        if session is not None and beat.epoch in (JOINING, LEAVING):
            session.ends_at = math.inf if beat.epoch == JOINING else now + _GOODBYE_SECONDS
        if answer.assignment is not None:
            self._open(group_id, answer.assignment)
        return answer

    def _check_kind(self, group_id: GroupId) -> None:
        if self._is_stream_group(group_id):
            raise UnknownGroup(f"the group {group_id!r} is not a share group")

    async def _create_missing(self, group_id: GroupId) -> None:
        if group_id in self._groups:
            return
        self._groups[group_id] = ShareGroup(self._max_size)
        try:
            await self._partitions.add_group(group_id)
        except PosthouseError:
            self._groups.pop(group_id, None)
            raise

    def _open(self, group_id: GroupId, assignment: Mapping[TopicId, int]) -> None:
        """A group begins where a partition ended when its first member came, not when that first read."""
        known = self._partitions.of(group_id)
        for topic, count in assignment.items():
            for partition in (PartitionId(topic, index) for index in range(count)):
                if partition not in known:
                    opening: asyncio.Task[object] = asyncio.create_task(self._opened(group_id, partition))
                    self._opening.add(opening)
                    opening.add_done_callback(self._opening.discard)

    async def _opened(self, group_id: GroupId, partition: PartitionId) -> None:
        try:
            await self._partitions.opened(group_id, partition)
        except PosthouseError:
            return  # the fetch that needs it tries again, and tells

    async def tick(self) -> None:
        """Take back what is held for too long, or by members that are gone."""
        if self._closed:
            return
        now = self._clock.monotonic()
        for session in self.sessions.over(now):
            self.end_session(session.group, session.member, count=False)
        for session in self.sessions.abandoned():
            self.end_session(session.group, session.member, count=True)
        for group_id, group in self._groups.items():
            for member in group.expired(now):
                group.remove(member)
                self.end_session(group_id, member, count=True)
        for share, (group_id, partition) in list(self._leasing.items()):
            if not share.leased:
                del self._leasing[share]
            elif share.expire(now, self.configs.get(group_id).terms):
                self._came_back(group_id, partition, share)

    # Sessions

    def open_session(self, group_id: GroupId, member: MemberId, connection: Connection) -> ShareSession:
        if self._closed:
            raise GroupsClosed("the broker is stopping")
        self.get(group_id)
        return self.sessions.open(group_id, member, connection)

    def end_session(self, group_id: GroupId, member: MemberId, *, count: bool) -> None:
        """What the member holds is ready at once. Without `count`, as if it had not been delivered."""
        self.sessions.close(group_id, member)
        terms = self.configs.get(group_id).terms
        for share, (owner, partition) in self._leasing.items():
            if owner == group_id and share.take_back(member, terms, count=count):
                self._came_back(group_id, partition, share)

    # Records

    async def fetch(
        self, session: ShareSession, wanted: Sequence[PartitionId], wish: Wish
    ) -> dict[PartitionId, Taken | PosthouseError]:
        """Lease records to the session's member; only partitions with something to tell are in the result."""
        return await self._fetching.fetch(session, wanted, wish, lambda: self._is_live(session))

    def _is_live(self, session: ShareSession) -> bool:
        known = self.sessions.find(session.group, session.member)
        return not self._closed and known is session and math.isinf(session.ends_at)

    async def acknowledge(
        self,
        group_id: GroupId,
        member: MemberId,
        said: Mapping[PartitionId, Sequence[Acknowledgement]],
    ) -> dict[PartitionId, PosthouseError | None]:
        """All that is valid is stored when this returns. For each partition None, or what is wrong."""
        config = self.configs.get(group_id)
        terms, may_renew = config.terms, config.share_renew_acknowledge_enable
        now = self._clock.monotonic()
        results: dict[PartitionId, PosthouseError | None] = {}
        settled: dict[PartitionId, SharePartition] = {}
        for partition, acknowledgements in said.items():
            share = self._partitions.find(group_id, partition)
            try:
                if share is None:
                    raise UnknownPartition(f"the group {group_id!r} reads nothing from {partition}")
                if not may_renew and any(Verdict.RENEW in each.verdicts for each in acknowledgements):
                    raise NotLeased(f"in the group {group_id!r} records cannot be held for longer")
                share.trim(self._view.bounds(partition).start)
                share.acknowledge(member, acknowledgements, now, terms)
                results[partition] = None
                settled[partition] = share
            except PosthouseError as error:
                results[partition] = error
        if settled:
            self._fetching.became_ready(group_id)
            try:
                await self._partitions.store(settled.values())
            except PosthouseError as error:
                results |= dict.fromkeys(settled, error)
        return results

    def _leased(self, group_id: GroupId, partition: PartitionId, share: SharePartition) -> None:
        self._leasing[share] = (group_id, partition)

    def _came_back(self, group_id: GroupId, partition: PartitionId, share: SharePartition) -> None:
        self._partitions.changed(group_id, partition, share)
        self._fetching.became_ready(group_id)

    # Progress

    def progress(self, group_id: GroupId) -> Mapping[PartitionId, SharePartition]:
        """Every partition that the group has begun to read; none for a group that does not exist (yet)."""
        if group_id not in self._groups:
            return {}
        found: dict[PartitionId, SharePartition] = {}
        for partition, share in self._partitions.of(group_id).items():
            try:
                share.trim(self._view.bounds(partition).start)
            except UnknownPartition:
                continue  # its topic has just been deleted, and the group is about to forget it
            found[partition] = share
        return found

    def check_movable(self, group_id: GroupId) -> None:
        """Raises unless the group has no members. It need not exist."""
        _check_name(group_id)
        self._check_kind(group_id)
        if group_id in self._groups:
            self.check_empty(group_id)

    async def move(self, group_id: GroupId, offsets: Mapping[PartitionId, int]) -> None:
        """Begin anew at these offsets. A group that does not exist is created, to begin there one day."""
        self.check_movable(group_id)
        if not offsets:
            return
        await self._create_missing(group_id)
        self.check_empty(group_id)  # a member may have joined in the meantime
        await self._partitions.move(group_id, offsets)

    async def forget_topic(self, group_id: GroupId, topic: TopicId) -> bool:
        """The group begins there as if for the first time. False where it never did."""
        self.check_empty(group_id)
        return await self._partitions.forget_topic(group_id, topic)

    def check_empty(self, group_id: GroupId) -> None:
        _check_name(group_id)
        if not self.get(group_id).is_empty:
            raise GroupNotEmpty(f"the group {group_id!r} has members")

    async def delete(self, group_id: GroupId) -> None:
        self.check_empty(group_id)
        del self._groups[group_id]
        self.sessions.close_group(group_id)
        self._fetching.forget(group_id)
        await self._partitions.forget_group(group_id)

    async def forget_topics(self, topics: Sequence[TopicId]) -> None:
        for group_id in list(self._groups):
            for topic in topics:
                await self._partitions.forget_topic(group_id, topic)
            self._fetching.became_ready(group_id)


def _check_name(group_id: GroupId) -> None:
    if not group_id:
        raise InvalidGroupId("a group must have a name")
