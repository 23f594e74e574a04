"""A group whose members assign its partitions themselves (Kafka's classic protocol).

A plain object: requests carry the time, answers leave through replies, and `tick` handles expired deadlines.
`wake_at` is the time of the next call; it may be too early, never too late.

Every wait is bounded. GATHERING ends at the latest after the longest rebalance timeout of the members;
members that did not rejoin are removed then. Members that joined but did not fetch their assignment are
removed one such timeout later. A member that waits for an answer does not expire, because it cannot send
heartbeats meanwhile.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
from posthouse.broker.groups.roster import Member, Roster
from posthouse.broker.groups.states import ClassicState, Event, after
from posthouse.model.errors import (
    FencedInstance,
    GroupFull,
    IllegalGeneration,
    InconsistentProtocol,
    MemberIdRequired,
    MembershipError,
    PosthouseError,
    RebalanceInProgress,
    UnknownMember,
)
from posthouse.model.ids import MemberId


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicRules:
    """External rules of a group. `same_subscription` compares the metadata of a static member that came back:
    if it is equal, the group need not rebalance."""

    initial_seconds: float
    max_size: int
    new_member_id: Callable[[str], MemberId]
    same_subscription: Callable[[str, bytes, bytes], bool]


class ClassicGroup:
    def __init__(self, rules: ClassicRules) -> None:
        self._rules = rules
        self.members = Roster()
        self.state = ClassicState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.wake_at = math.inf
        self._gather_until = math.inf
        self._initial_left: float | None = None
        """Initial rebalance delay: how much longer the group may wait for its first members. None
        afterwards."""
        self._newcomer = False
        self._unsynced: set[MemberId] = set()
        self._sync_until = math.inf

    @property
    def is_empty(self) -> bool:
        return self.state in (ClassicState.EMPTY, ClassicState.DEAD)

    def join(self, request: JoinRequest, now: float, reply: Reply[Joined]) -> None:
        self._check_alive()
        self._check_size(request.member)
        self._check_protocols(request)
        if request.member is None:
            self._join_newcomer(request, now, reply)
        elif request.member in self.members.expected:
            self._enter(request.member, request, now, reply)
        else:
            self._join_again(self.members.checked(request.member, request.instance), request, now, reply)

    def sync(self, request: SyncRequest, now: float, reply: Reply[Synced]) -> None:
        self._check_alive()
        member = self._checked(request.identity)
        if request.protocol_type not in (None, self.protocol_type) or request.protocol not in (
            None,
            self.protocol,
        ):
            raise InconsistentProtocol(f"the group uses {self.protocol_type!r} and {self.protocol!r}")
        if self.state is ClassicState.GATHERING:
            raise RebalanceInProgress("the group is rebalancing")
        self._unsynced.discard(member.id)
        member.sync_reply = reply
        if self.state is ClassicState.STABLE:
            self._hand_out(member, now)
        elif member.id == self.members.leader:
            assignments = dict(request.assignments)
            for each in self.members:
                each.assignment = assignments.get(each.id, b"")
            self.state = after(self.state, Event.ASSIGNED)
            for each in self.members:
                if each.sync_reply is not None:
                    self._hand_out(each, now)

    def heartbeat(self, identity: MemberIdentity, now: float) -> None:
        self._check_alive()
        self._checked(identity).seen(now)
        if self.state is ClassicState.GATHERING:
            raise RebalanceInProgress("the group is rebalancing")

    def leave(self, leaving: Sequence[Leaving], now: float) -> list[MembershipError | None]:
        """Remove members. One result per member: None if it has left."""
        self._check_alive()
        results: list[MembershipError | None] = []
        removed = False
        for each in leaving:
            try:
                removed |= self._take_out(each)
            except MembershipError as error:
                results.append(error)
            else:
                results.append(None)
        self._members_gone(now, removed=removed)
        return results

    def check_commit(self, identity: MemberIdentity, now: float, *, transactional: bool = False) -> None:
        """Raises unless this member, or a client without membership, may commit offsets now."""
        anonymous = identity.generation == NO_GENERATION and not identity.member and identity.instance is None
        if self.is_empty and identity.generation == NO_GENERATION:
            return
        if anonymous:
            if transactional:
                return
            raise UnknownMember("the group has members; only they may commit")
        member = self._checked(identity)
        if self.state is ClassicState.AWAITING_ASSIGNMENT and not transactional:
            raise RebalanceInProgress("the group is rebalancing")
        if not member.is_waiting:
            member.seen(now)

    def tick(self, now: float) -> None:
        """Handle expired deadlines: members first, because their removal can complete a rebalance."""
        gone = [member for member in self.members if member.expires_at <= now and not member.is_waiting]
        lapsed = [member_id for member_id, until in self.members.expected.items() if until <= now]
        for member in gone:
            self.members.remove(member)
        for member_id in lapsed:
            del self.members.expected[member_id]
        if gone or lapsed:
            self._members_gone(now, removed=bool(gone))
        if self.state is ClassicState.GATHERING and now >= self._gather_until:
            self._gathering_over(now)
        if self._unsynced and now >= self._sync_until:
            self._drop_unsynced(now)
        self._plan_wake_up()

    def close(self, reason: PosthouseError) -> None:
        """This broker does not coordinate the group any more: answer all waiting members."""
        for member in self.members:
            member.answer_join(reason)
            member.answer_sync(reason)

    def delete(self) -> None:
        self.state = after(self.state, Event.DELETED)

    def _check_alive(self) -> None:
        if self.state is ClassicState.DEAD:
            raise UnknownMember("the group has been deleted")

    def _check_size(self, member_id: MemberId | None) -> None:
        """Raises GroupFull. Expected members count as well, but never against an existing member."""
        if member_id in self.members or member_id in self.members.expected:
            return
        if len(self.members) + len(self.members.expected) >= self._rules.max_size:
            raise GroupFull(f"the group has {self._rules.max_size} members already")

    def _check_protocols(self, request: JoinRequest) -> None:
        if not request.protocol_type or not request.protocols:
            raise InconsistentProtocol("a member must offer at least one assignment protocol")
        if not len(self.members):
            return
        if request.protocol_type != self.protocol_type:
            raise InconsistentProtocol(f"the group is of the type {self.protocol_type!r}")
        if not self.members.supports(request.protocols):
            raise InconsistentProtocol("the group has no protocol in common with this member")

    def _checked(self, identity: MemberIdentity) -> Member:
        member = self.members.identified(identity)
        if identity.generation != self.generation:
            raise IllegalGeneration(
                f"the group is in generation {self.generation}, not {identity.generation}"
            )
        return member

    def _join_newcomer(self, request: JoinRequest, now: float, reply: Reply[Joined]) -> None:
        member_id = self._rules.new_member_id(request.instance or request.client.id)
        holder = self.members.holder(request.instance)
        if holder is not None:
            self._take_over(holder, member_id, request, now, reply)
        elif request.instance is None and request.must_know_its_id:
            self.members.expected[member_id] = now + request.session_seconds
            self._wake(now + request.session_seconds)
            raise MemberIdRequired(member_id)
        else:
            self._enter(member_id, request, now, reply)

    def _enter(self, member_id: MemberId, request: JoinRequest, now: float, reply: Reply[Joined]) -> None:
        if not len(self.members):
            self.protocol_type = request.protocol_type
        member = Member(member_id, request)
        member.join_reply = reply
        self.members.add(member)
        self._newcomer = True
        self.rebalance(now)

    def _take_over(
        self, holder: Member, member_id: MemberId, request: JoinRequest, now: float, reply: Reply[Joined]
    ) -> None:
        """A static member is back. If its subscription is the same, the group stays stable."""
        old_leader = self.members.leader
        old_metadata = holder.metadata(self.protocol)
        self._unsynced.discard(holder.id)
        self.members.rename(holder, member_id)
        self.members.update(holder, request)
        holder.client = request.client
        holder.seen(now)
        self._wake(holder.expires_at)
        holder.join_reply = reply
        if self.state is not ClassicState.STABLE or not self._wants_the_same(holder, old_metadata):
            self.rebalance(now)
            return
        # A leader would assign again, but a stable group does not rebalance. Unless the member supports
        # `can_skip_assignment`, it gets the leader's old id, which no member has.
        leads = self.members.leader == member_id
        shown_leader = self.members.leader if request.can_skip_assignment else old_leader
        self._welcome(holder, now, leader=shown_leader, skip_assignment=leads and request.can_skip_assignment)

    def _wants_the_same(self, member: Member, old_metadata: bytes) -> bool:
        if self.protocol is None or self.members.elected_protocol() != self.protocol:
            return False
        new = member.metadata(self.protocol)
        return new == old_metadata or self._rules.same_subscription(
            self.protocol_type or "", old_metadata, new
        )

    def _join_again(self, member: Member, request: JoinRequest, now: float, reply: Reply[Joined]) -> None:
        if member.join_reply is not None:
            member.answer_join(RebalanceInProgress("the member has joined again"))
        changed = member.protocols != request.protocols
        self.members.update(member, request)
        member.join_reply = reply
        member.expires_at = math.inf
        # In a stable group a leader that joins again wants to assign anew. Any other member that joins again
        # with the same subscription has missed the answer.
        missed_our_answer = self.state is ClassicState.AWAITING_ASSIGNMENT or (
            self.state is ClassicState.STABLE and member.id != self.members.leader
        )
        if missed_our_answer and not changed:
            self._welcome(member, now)
        else:
            self.rebalance(now)

    def _take_out(self, leaving: Leaving) -> bool:
        """Remove a member. False if it had not joined yet, so that no rebalance is needed."""
        if leaving.member is not None and self.members.expected.pop(leaving.member, None) is not None:
            return False
        member = self.members.holder(leaving.instance) if leaving.instance is not None else None
        if leaving.instance is None:
            member = self.members.get(leaving.member)
        if member is None:
            raise UnknownMember(f"{leaving.instance or leaving.member!r} is not a member")
        if leaving.member is not None and leaving.member != member.id:
            raise FencedInstance(f"{leaving.instance!r} belongs to a newer member")
        self.members.remove(member)
        return True

    def _members_gone(self, now: float, *, removed: bool = True) -> None:
        if self.state is ClassicState.GATHERING:
            self._complete_if_all_joined(now)
        elif removed and self.state is not ClassicState.EMPTY:
            self.rebalance(now)

    def rebalance(self, now: float) -> None:
        """Start a rebalance, or extend the running one for a new member."""
        before, self.state = self.state, after(self.state, Event.REBALANCE_NEEDED)
        if before is not ClassicState.GATHERING:
            self._unsynced.clear()
            for member in self.members:
                member.assignment = b"" if before is ClassicState.AWAITING_ASSIGNMENT else member.assignment
                if member.sync_reply is not None:
                    member.answer_sync(RebalanceInProgress("the members of the group have changed"))
                    member.seen(now)
                    self._wake(member.expires_at)
            seconds = self.members.rebalance_seconds()
            if before is ClassicState.EMPTY and self._rules.initial_seconds > 0:
                self._initial_left = max(0.0, seconds - self._rules.initial_seconds)
                seconds = min(seconds, self._rules.initial_seconds)
                self._newcomer = False
            self._gather_until = now + seconds
            self._wake(self._gather_until)
        self._complete_if_all_joined(now)

    def _complete_if_all_joined(self, now: float) -> None:
        """Complete the rebalance if all members have joined. The first members of a group also wait for the
        initial delay."""
        complete = self._initial_left is None and self.members.all_joined()
        if self.state is ClassicState.GATHERING and (complete or not len(self.members)):
            self._complete(now)

    def _gathering_over(self, now: float) -> None:
        if self._initial_left and self._newcomer:
            more = min(self._rules.initial_seconds, self._initial_left)
            self._initial_left -= more
            self._newcomer = False
            self._gather_until = now + more
            return
        self._complete(now)

    def _complete(self, now: float) -> None:
        for member in [each for each in self.members if each.join_reply is None and each.instance is None]:
            self.members.remove(member)
        if len(self.members) and not self.members.elect():
            # Only absent static members are left: they stay until their sessions end.
            self._gather_until = now + self.members.rebalance_seconds()
            self._wake(self._gather_until)
            return
        self._initial_left = None
        self._gather_until = math.inf
        self.generation += 1
        if not len(self.members):
            self.state = after(self.state, Event.ALL_LEFT)
            self.protocol = None
            return
        self.protocol = self.members.elected_protocol()
        self.state = after(self.state, Event.MEMBERS_GATHERED)
        self._unsynced = {member.id for member in self.members if member.join_reply is not None}
        self._sync_until = now + self.members.rebalance_seconds()
        self._wake(self._sync_until)
        for member in list(self.members):
            if member.join_reply is not None:
                self._welcome(member, now)

    def _welcome(
        self, member: Member, now: float, *, leader: MemberId | None = None, skip_assignment: bool = False
    ) -> None:
        leader = leader or self.members.leader
        assert self.protocol is not None
        assert self.protocol_type is not None
        assert leader is not None
        member.seen(now)
        self._wake(member.expires_at)
        member.knows_its_id = True
        member.answer_join(
            Joined(
                member=member.id,
                generation=self.generation,
                protocol_type=self.protocol_type,
                protocol=self.protocol,
                leader=leader,
                members=self.members.listed(self.protocol) if leader == member.id else (),
                skip_assignment=skip_assignment,
            )
        )

    def _hand_out(self, member: Member, now: float) -> None:
        member.seen(now)
        self._wake(member.expires_at)
        member.answer_sync(
            Synced(
                protocol_type=self.protocol_type or "",
                protocol=self.protocol or "",
                assignment=member.assignment,
            )
        )

    def _drop_unsynced(self, now: float) -> None:
        for member_id in self._unsynced:
            member = self.members.get(member_id)
            if member is not None:
                self.members.remove(member)
        self._unsynced.clear()
        self._members_gone(now)

    def _wake(self, at: float) -> None:
        self.wake_at = min(self.wake_at, at)

    def _plan_wake_up(self) -> None:
        times = [member.expires_at for member in self.members if not member.is_waiting]
        times += self.members.expected.values()
        if self.state is ClassicState.GATHERING:
            times.append(self._gather_until)
        if self._unsynced:
            times.append(self._sync_until)
        self.wake_at = min(times, default=math.inf)
