"""Fetch sessions: the partitions that members fetch from, kept between their requests.

A member has one session with each broker. Another broker that leads partitions relays the requests of its
session to this one.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Protocol

from posthouse.model.ids import GroupId, MemberId, PartitionId
from posthouse.protocols.kafka.share_groups.errors import (
    TooManyShareSessions,
    UnknownShareSession,
    WrongShareSessionEpoch,
)

OPENING = 0
CLOSING = -1
_LAST_EPOCH = 2**31 - 1
_MOST = 10_000


class MemberConnection(Protocol):
    """The connection of a member."""

    @property
    def is_open(self) -> bool: ...

    @property
    def way(self) -> object:
        """Requests of one session come by one way: see `ConnectionIdentity.way`."""


class ShareSession:
    __slots__ = ("connection", "ends_at", "epoch", "group", "member", "partitions", "way")

    def __init__(self, group: GroupId, member: MemberId, connection: MemberConnection) -> None:
        self.group = group
        self.member = member
        self.connection = connection
        self.way = connection.way
        self.epoch = OPENING
        self.partitions: dict[PartitionId, None] = {}
        """In the order in which they were named."""
        self.ends_at = math.inf
        """Deadline of the session after the member has left the group."""

    def change(self, added: Iterable[PartitionId], forgotten: Iterable[PartitionId]) -> None:
        for partition in forgotten:
            self.partitions.pop(partition, None)
        self.partitions |= dict.fromkeys(added)

    def in_turn(self) -> list[PartitionId]:
        """The partitions in round-robin order, so that a busy one does not starve the others."""
        partitions = list(self.partitions)
        if not partitions:
            return []
        first = self.epoch % len(partitions)
        return partitions[first:] + partitions[:first]


class ShareSessions:
    """Owned by the event loop."""

    def __init__(self) -> None:
        self._sessions: dict[tuple[GroupId, MemberId, object], ShareSession] = {}
        self._of_members: dict[tuple[GroupId, MemberId], list[ShareSession]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[ShareSession]:
        return iter(self._sessions.values())

    def open(self, group: GroupId, member: MemberId, connection: MemberConnection) -> ShareSession:
        """Open a session, which replaces any that the member has by the same way.

        At the limit, the connection with several sessions loses its oldest one, unless it is the one that
        asks. So a client cannot exclude others by opening many: a member needs one.
        """
        earlier = self.find(group, member, connection.way)
        if earlier is not None:
            self.close(earlier)
        elif len(self._sessions) >= _MOST:
            self._make_room(connection)
        session = ShareSession(group, member, connection)
        self._sessions[group, member, session.way] = session
        self._of_members.setdefault((group, member), []).append(session)
        session.epoch = 1
        return session

    def _make_room(self, asking: MemberConnection) -> None:
        counts = Counter(session.connection for session in self)
        most, count = counts.most_common(1)[0]
        if count <= max(counts[asking], 1):
            raise TooManyShareSessions(f"there are {_MOST} sessions already")
        oldest = next(session for session in self if session.connection is most)
        self.close(oldest)

    def find(self, group: GroupId, member: MemberId, way: object = None) -> ShareSession | None:
        return self._sessions.get((group, member, way))

    def of(self, group: GroupId, member: MemberId) -> Sequence[ShareSession]:
        """All sessions of a member."""
        return list(self._of_members.get((group, member), ()))

    def get(self, group: GroupId, member: MemberId, way: object) -> ShareSession:
        session = self.find(group, member, way)
        if session is None:
            raise UnknownShareSession(f"{member!r} has no session in the group {group!r}")
        return session

    def follow(
        self, group: GroupId, member: MemberId, epoch: int, connection: MemberConnection
    ) -> ShareSession:
        """The session, for its next request."""
        session = self.get(group, member, connection.way)
        if epoch != session.epoch:
            raise WrongShareSessionEpoch(f"the session is in epoch {session.epoch}, not {epoch}")
        session.epoch = 1 if epoch == _LAST_EPOCH else epoch + 1
        session.connection = connection
        return session

    def close(self, session: ShareSession) -> None:
        if self._sessions.get((session.group, session.member, session.way)) is not session:
            return
        del self._sessions[session.group, session.member, session.way]
        of_member = self._of_members[session.group, session.member]
        of_member.remove(session)
        if not of_member:
            del self._of_members[session.group, session.member]

    def close_group(self, group: GroupId) -> None:
        for session in [each for each in self if each.group == group]:
            self.close(session)

    def abandoned(self) -> Collection[ShareSession]:
        """Sessions whose connection is closed."""
        return [session for session in self if not session.connection.is_open]

    def over(self, now: float) -> Collection[ShareSession]:
        return [session for session in self if session.ends_at <= now]
