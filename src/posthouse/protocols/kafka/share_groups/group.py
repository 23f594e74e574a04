"""The members of a share group: their heartbeats and assignments.

Every member may read every partition of its topics: a record is leased to the member that asks first, so
nothing has to be moved when members join or leave. The group's epoch grows with each change of members,
subscriptions or topics, and a member's epoch follows with its next heartbeat.

A plain object: callers pass the time and the topics.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from posthouse.broker.groups.config import GroupConfig
from posthouse.broker.groups.membership import MemberClient
from posthouse.model.errors import BadRequest, FencedMemberEpoch, GroupFull, UnknownMember
from posthouse.model.ids import MemberId, TopicId
from posthouse.model.topics import Topic

JOINING = 0
LEAVING = -1

Assignment = Mapping[TopicId, int]
"""Topics with their numbers of partitions."""
NOTHING: Assignment = {}


class ShareState(Enum):
    EMPTY = auto()
    STABLE = auto()
    DEAD = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareBeat:
    """A heartbeat. None means: unchanged."""

    member: MemberId
    epoch: int
    client: MemberClient = MemberClient()
    rack: str | None = None
    topics: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareBeatAnswer:
    epoch: int
    assignment: Assignment | None = None
    """None: unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareRules:
    session_seconds: float
    assignment_seconds: float = 0.0
    """Minimum interval between two assignments to a member."""

    @classmethod
    def of(cls, config: GroupConfig) -> "ShareRules":
        return cls(
            session_seconds=config.share_session_timeout_ms / 1000,
            assignment_seconds=config.share_assignment_interval_ms / 1000,
        )


class ShareMember:
    __slots__ = (
        "assigned",
        "assigned_at",
        "client",
        "epoch",
        "expires_at",
        "id",
        "previous_epoch",
        "rack",
        "topics",
    )

    def __init__(self, member_id: MemberId) -> None:
        self.id = member_id
        self.client = MemberClient()
        self.rack: str | None = None
        self.topics: frozenset[str] = frozenset()
        self.epoch = self.previous_epoch = JOINING
        self.assigned: Assignment = NOTHING
        self.assigned_at = -math.inf
        self.expires_at = math.inf


class ShareGroup:
    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._members: dict[MemberId, ShareMember] = {}
        self.epoch = 0

    def __iter__(self) -> Iterator[ShareMember]:
        return iter(self._members.values())

    @property
    def is_empty(self) -> bool:
        return not self._members

    @property
    def state(self) -> ShareState:
        return ShareState.STABLE if self._members else ShareState.EMPTY

    def reads(self, topic: str) -> bool:
        return any(topic in member.topics for member in self)

    def beat(
        self, beat: ShareBeat, find: Callable[[str], Topic | None], now: float, rules: ShareRules
    ) -> ShareBeatAnswer:
        if beat.epoch == LEAVING:
            self._known(beat.member)
            self.remove(beat.member)
            return ShareBeatAnswer(epoch=LEAVING)
        member = self._joining(beat) if beat.epoch == JOINING else self._reporting(beat)
        before = member.assigned
        self._update(member, beat)
        if now >= member.assigned_at + rules.assignment_seconds:
            member.assigned = _resolved(member.topics, find)
        if member.assigned != before:
            member.assigned_at = now
            self.epoch += 1
        if member.epoch != self.epoch:
            member.previous_epoch, member.epoch = member.epoch, self.epoch
        member.expires_at = now + rules.session_seconds
        tell = beat.epoch == JOINING or beat.topics is not None or member.assigned != before
        return ShareBeatAnswer(epoch=member.epoch, assignment=member.assigned if tell else None)

    def remove(self, member_id: MemberId) -> None:
        if self._members.pop(member_id, None) is not None:
            self.epoch += 1

    def expired(self, now: float) -> list[MemberId]:
        """The members whose sessions have expired."""
        return [member.id for member in self if member.expires_at <= now]

    def _joining(self, beat: ShareBeat) -> ShareMember:
        member = self._members.get(beat.member)
        if member is None:
            if len(self._members) >= self._max_size:
                raise GroupFull(f"the group has {self._max_size} members already")
            member = self._members[beat.member] = ShareMember(beat.member)
            self.epoch += 1
        member.epoch = member.previous_epoch = JOINING
        return member

    def _known(self, member_id: MemberId) -> ShareMember:
        member = self._members.get(member_id)
        if member is None:
            raise UnknownMember(f"{member_id!r} is not a member")
        return member

    def _reporting(self, beat: ShareBeat) -> ShareMember:
        member = self._known(beat.member)
        # The answer with the latest epoch may have been lost.
        if beat.epoch not in (member.epoch, member.previous_epoch):
            raise FencedMemberEpoch(f"the member is in epoch {member.epoch}, not {beat.epoch}")
        return member

    def _update(self, member: ShareMember, beat: ShareBeat) -> None:
        member.client = beat.client
        if beat.rack is not None:
            member.rack = beat.rack
        if beat.topics is not None and beat.topics != member.topics:
            member.topics = beat.topics
            self.epoch += 1


def _resolved(names: frozenset[str], find: Callable[[str], Topic | None]) -> Assignment:
    topics = [topic for name in names if (topic := find(name)) is not None]
    return {topic.id: topic.partitions for topic in topics}


def check_beat(beat: ShareBeat) -> None:
    """Raises if a heartbeat is invalid, independent of the group."""
    if not beat.member:
        raise BadRequest("the member id must not be empty")
    if beat.epoch < LEAVING:
        raise BadRequest(f"there is no epoch {beat.epoch}")
    if beat.epoch == JOINING and not beat.topics:
        raise BadRequest("a member that joins must send its subscription")
    if beat.rack == "":
        raise BadRequest("a rack must have a name")
