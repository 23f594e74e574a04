"""Members that speak the classic protocol in a group whose partitions the broker assigns.

They join and sync as usual, but there is no leader: the broker gives each member its assignment. A heartbeat
asks a member to join again whenever it has a step to take. So an application can migrate from one protocol to
the other, one instance at a time and without downtime.
"""

import math
from collections.abc import Callable, Sequence

from posthouse.broker.groups.consumer import ConsumerGroup
from posthouse.broker.groups.consumer_member import JOINING, Beat, ConsumerMember, ConsumerMemberState, Guest
from posthouse.broker.groups.membership import (
    Joined,
    JoinRequest,
    Leaving,
    MemberIdentity,
    Synced,
    SyncRequest,
)
from posthouse.broker.groups.metadata import MemberMetadata, MemberSubscription
from posthouse.broker.groups.topic_view import TopicView
from posthouse.model.errors import (
    FencedInstance,
    IllegalGeneration,
    InconsistentProtocol,
    MemberIdRequired,
    MembershipError,
    RebalanceInProgress,
    UnknownMember,
)
from posthouse.model.ids import MemberId

GUEST_PROTOCOL_TYPE = "consumer"
_NO_LEADER = MemberId("")


class Guests:
    """The classic protocol's view of a group. Has no state of its own."""

    def __init__(
        self, group: ConsumerGroup, metadata: MemberMetadata, new_member_id: Callable[[str], MemberId]
    ) -> None:
        self._group = group
        self._metadata = metadata
        self._new_member_id = new_member_id

    def join(self, request: JoinRequest, topics: TopicView, now: float) -> Joined:
        subscription = self._subscription(request)
        member = self._admitted(request, now)
        member.guest = Guest(protocols=request.protocols, session_seconds=request.session_seconds)
        beat = Beat(
            member=member.id,
            epoch=member.epoch,
            instance=request.instance,
            client=request.client,
            rebalance_seconds=request.rebalance_seconds,
            topics=subscription.topics,
            owned=topics.ids(subscription.owned),
        )
        self._group.advance(member, beat, topics, now)
        return Joined(
            member=member.id,
            generation=member.epoch,
            protocol_type=request.protocol_type,
            protocol=request.protocols[0].name,
            leader=_NO_LEADER,
        )

    def sync(self, request: SyncRequest, topics: TopicView, now: float) -> Synced:
        member, guest = self._checked(request.identity)
        protocol = guest.protocols[0].name
        if request.protocol_type not in (None, GUEST_PROTOCOL_TYPE) or request.protocol not in (
            None,
            protocol,
        ):
            raise InconsistentProtocol(f"the member joined with {protocol!r}")
        if self._group.is_ahead_of(member, now) and member.progress is not ConsumerMemberState.GIVING_UP:
            raise RebalanceInProgress("the group has changed")
        self._group.seen(member, now)
        return Synced(
            protocol_type=GUEST_PROTOCOL_TYPE,
            protocol=protocol,
            assignment=self._metadata.encoded_assignment(topics.named(member.assigned)),
        )

    def heartbeat(self, identity: MemberIdentity, now: float) -> None:
        member, _ = self._checked(identity)
        must_join = (
            self._group.is_ahead_of(member, now)
            or member.progress is ConsumerMemberState.GIVING_UP
            or (member.progress is ConsumerMemberState.WAITING and self._group.can_gain(member))
        )
        if must_join and math.isinf(member.give_up_until):
            member.give_up_until = now + member.rebalance_seconds
        self._group.seen(member, now)
        if must_join:
            raise RebalanceInProgress("the group has changed")

    def leave(self, leaving: Sequence[Leaving]) -> list[MembershipError | None]:
        """Remove members. One result per member: None if it has left."""
        results: list[MembershipError | None] = []
        for each in leaving:
            try:
                self._take_out(each)
            except MembershipError as error:
                results.append(error)
            else:
                results.append(None)
        return results

    def _take_out(self, leaving: Leaving) -> None:
        if leaving.member is not None and self._group.expected.pop(leaving.member, None) is not None:
            return
        if leaving.instance is not None:
            member = self._group.holder(leaving.instance)
        else:
            member = self._group.get(leaving.member)
        if member is None:
            raise UnknownMember(f"{leaving.instance or leaving.member!r} is not a member")
        if leaving.member is not None and leaving.member != member.id:
            raise FencedInstance(f"{leaving.instance!r} belongs to a newer member")
        self._group.remove(member)

    def _subscription(self, request: JoinRequest) -> MemberSubscription:
        """Raises if the member is incompatible with the group."""
        if not request.protocols:
            raise InconsistentProtocol("a member must offer at least one assignment protocol")
        found = self._metadata.subscription(request.protocol_type, request.protocols[0].metadata)
        if found is None:
            raise InconsistentProtocol("the broker assigns the partitions of this group")
        common = {each.name for each in request.protocols}
        for member in self._group:
            if member.guest is not None and member.id != request.member:
                common &= {each.name for each in member.guest.protocols}
        if not common:
            raise InconsistentProtocol("the group has no protocol in common with this member")
        return found

    def _admitted(self, request: JoinRequest, now: float) -> ConsumerMember:
        if request.member is not None and request.member not in self._group.expected:
            return self._known(request.member, request)
        holder = self._group.holder(request.instance)
        if (
            request.member is None
            and holder is None
            and request.instance is None
            and request.must_know_its_id
        ):
            member_id = self._new_member_id(request.client.id)
            self._group.expect(member_id, now + request.session_seconds)
            raise MemberIdRequired(member_id)
        member_id = request.member or self._new_member_id(request.instance or request.client.id)
        if holder is not None:
            return self._group.take_over(holder, member_id)
        self._group.expected.pop(member_id, None)
        return self._group.add(
            ConsumerMember(
                Beat(member=member_id, epoch=JOINING, instance=request.instance, client=request.client)
            )
        )

    def _known(self, member_id: MemberId, request: JoinRequest) -> ConsumerMember:
        holder = self._group.holder(request.instance)
        if request.instance is not None and holder is not None and holder.id != member_id:
            raise FencedInstance(f"{request.instance!r} belongs to a newer member")
        member = self._group.get(member_id)
        if member is None:
            raise UnknownMember(f"{member_id!r} is not a member")
        return member

    def _checked(self, identity: MemberIdentity) -> tuple[ConsumerMember, Guest]:
        if identity.instance is not None:
            holder = self._group.holder(identity.instance)
            if holder is not None and holder.id != identity.member:
                raise FencedInstance(f"{identity.instance!r} belongs to a newer member")
        member = self._group.get(identity.member)
        if member is None or member.guest is None:
            raise UnknownMember(f"{identity.member!r} is not a member")
        if identity.generation != member.epoch:
            raise IllegalGeneration(f"the member is in generation {member.epoch}, not {identity.generation}")
        return member, member.guest
