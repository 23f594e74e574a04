"""The members of a classic group: identities, pending replies, and common protocols."""

import math
from collections import Counter
from collections.abc import Iterator

from posthouse.broker.groups.membership import (
    Joined,
    JoinedMember,
    JoinRequest,
    MemberIdentity,
    OfferedProtocol,
    Reply,
    Synced,
)
from posthouse.model.errors import FencedInstance, PosthouseError, UnknownMember
from posthouse.model.ids import InstanceId, MemberId


class Member:
    __slots__ = (
        "assignment",
        "client",
        "expires_at",
        "id",
        "instance",
        "join_reply",
        "knows_its_id",
        "protocols",
        "rebalance_seconds",
        "session_seconds",
        "sync_reply",
    )

    def __init__(self, member_id: MemberId, request: JoinRequest) -> None:
        self.id = member_id
        self.instance = request.instance
        self.client = request.client
        self.knows_its_id = request.member is not None
        """Otherwise it is told with the answer to its first join."""
        self.assignment = b""
        self.join_reply: Reply[Joined] | None = None
        self.sync_reply: Reply[Synced] | None = None
        self.expires_at = math.inf
        self.update(request)

    def update(self, request: JoinRequest) -> None:
        self.protocols: tuple[OfferedProtocol, ...] = request.protocols
        self.session_seconds = request.session_seconds
        self.rebalance_seconds = request.rebalance_seconds

    def seen(self, now: float) -> None:
        self.expires_at = now + self.session_seconds

    @property
    def protocol_names(self) -> set[str]:
        return {each.name for each in self.protocols}

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for an answer: it cannot send heartbeats meanwhile."""
        return self.join_reply is not None or self.sync_reply is not None

    def metadata(self, protocol: str | None) -> bytes:
        return next((each.metadata for each in self.protocols if each.name == protocol), b"")

    def answer_join(self, result: Joined | PosthouseError) -> None:
        reply, self.join_reply = self.join_reply, None
        if reply is not None:
            reply(result)

    def answer_sync(self, result: Synced | PosthouseError) -> None:
        reply, self.sync_reply = self.sync_reply, None
        if reply is not None:
            reply(result)


class Roster:
    def __init__(self) -> None:
        self._members: dict[MemberId, Member] = {}
        self._static: dict[InstanceId, MemberId] = {}
        self.expected: dict[MemberId, float] = {}
        """Ids that were given out and not yet used, with their expiry."""
        self.leader: MemberId | None = None
        self._supporters: Counter[str] = Counter()
        """Number of members that support each protocol; maintained incrementally, because every join needs
        it."""

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, member_id: MemberId | None) -> bool:
        return member_id in self._members

    def get(self, member_id: MemberId | None) -> Member | None:
        return self._members.get(member_id) if member_id is not None else None

    def holder(self, instance: InstanceId | None) -> Member | None:
        """The current member with this static instance id."""
        return self.get(self._static.get(instance)) if instance is not None else None

    def checked(self, member_id: MemberId, instance: InstanceId | None) -> Member:
        """The member. Raises if the id is unknown, or the static instance id belongs to another member by
        now."""
        if instance is not None:
            holder = self.holder(instance)
            if holder is None:
                raise UnknownMember(f"no member has the instance id {instance!r}")
            if holder.id != member_id:
                raise FencedInstance(f"{instance!r} belongs to a newer member")
        member = self.get(member_id)
        if member is None:
            raise UnknownMember(f"{member_id!r} is not a member")
        return member

    def identified(self, identity: MemberIdentity) -> Member:
        return self.checked(identity.member, identity.instance)

    def add(self, member: Member) -> None:
        self._members[member.id] = member
        self._supporters.update(member.protocol_names)
        self.expected.pop(member.id, None)
        if member.instance is not None:
            self._static[member.instance] = member.id
        if self.leader is None:
            self.leader = member.id

    def remove(self, member: Member) -> None:
        """Remove the member, and answer its pending requests with an error."""
        self._take_out(member)
        if member.instance is not None and self._static.get(member.instance) == member.id:
            del self._static[member.instance]
        if self.leader == member.id:
            self.leader = None
            self.elect()
        gone = UnknownMember(f"{member.id!r} is no longer a member")
        member.answer_join(gone)
        member.answer_sync(gone)

    def rename(self, member: Member, member_id: MemberId) -> None:
        """A static member came back: give it a new id, and fence the old one."""
        fenced = FencedInstance(f"{member.instance!r} has joined again")
        member.answer_join(fenced)
        member.answer_sync(fenced)
        self._take_out(member)
        if self.leader == member.id:
            self.leader = member_id
        member.id = member_id
        self.add(member)

    def update(self, member: Member, request: JoinRequest) -> None:
        self._supporters.subtract(member.protocol_names)
        member.update(request)
        self._supporters.update(member.protocol_names)

    def _take_out(self, member: Member) -> None:
        del self._members[member.id]
        self._supporters.subtract(member.protocol_names)

    def elect(self) -> bool:
        """Elect a leader among members that have joined; false if none has. A leader that has joined stays
        leader."""
        leader = self.get(self.leader)
        if leader is not None and leader.join_reply is not None:
            return True
        joined = next((member for member in self if member.join_reply is not None), None)
        if joined is not None:
            self.leader = joined.id
            return True
        if leader is None:
            self.leader = next((member.id for member in self), None)
        return False

    def all_joined(self) -> bool:
        return not self.expected and all(member.join_reply is not None for member in self)

    def rebalance_seconds(self) -> float:
        return max((member.rebalance_seconds for member in self), default=0.0)

    def supports(self, protocols: tuple[OfferedProtocol, ...]) -> bool:
        return bool(self._common().intersection(each.name for each in protocols))

    def elected_protocol(self) -> str:
        """The protocol with most votes: every member votes for its first choice among the common
        protocols."""
        common = self._common()
        votes = Counter(
            next(each.name for each in member.protocols if each.name in common) for member in self
        )
        return votes.most_common(1)[0][0]

    def _common(self) -> set[str]:
        return {name for name, count in self._supporters.items() if count == len(self)}

    def listed(self, protocol: str) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(id=member.id, instance=member.instance, metadata=member.metadata(protocol))
            for member in self
        )
