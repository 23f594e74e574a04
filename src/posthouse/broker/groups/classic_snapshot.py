"""What another broker needs to go on with a classic group, as a value.

A stable group stays stable. If the group is rebalancing, the members that wait for an answer are told that
it moves. The rebalance begins anew at the next broker, in which they join with the ids that they have. A new
member that was not told its id yet is left out: it joins as a new one, and the rebalance would wait for its
id in vain.
"""

from dataclasses import dataclass

from posthouse.broker.groups.classic import ClassicGroup, ClassicRules
from posthouse.broker.groups.membership import JoinRequest, MemberClient, OfferedProtocol
from posthouse.broker.groups.roster import Member
from posthouse.broker.groups.states import ClassicState
from posthouse.model.ids import InstanceId, MemberId


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMemberSnapshot:
    id: MemberId
    instance: InstanceId | None
    client: MemberClient
    session_seconds: float
    rebalance_seconds: float
    assignment: bytes
    protocols: tuple[OfferedProtocol, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicSnapshot:
    generation: int
    protocol_type: str
    protocol: str | None
    leader: MemberId | None
    is_stable: bool
    members: tuple[ClassicMemberSnapshot, ...]

    @property
    def session_seconds(self) -> float:
        """The longest of a member."""
        return max(each.session_seconds for each in self.members)


def classic_snapshot(group: ClassicGroup) -> ClassicSnapshot | None:
    """None if there are no members."""
    members = tuple(_member(each) for each in group.members if each.knows_its_id or each.instance is not None)
    if group.is_empty or not members:
        return None
    return ClassicSnapshot(
        generation=group.generation,
        protocol_type=group.protocol_type or "",
        protocol=group.protocol,
        leader=group.members.leader,
        is_stable=group.state is ClassicState.STABLE,
        members=members,
    )


def _member(member: Member) -> ClassicMemberSnapshot:
    return ClassicMemberSnapshot(
        id=member.id,
        instance=member.instance,
        client=member.client,
        session_seconds=member.session_seconds,
        rebalance_seconds=member.rebalance_seconds,
        assignment=member.assignment,
        protocols=member.protocols,
    )


def resumed_classic(snapshot: ClassicSnapshot, rules: ClassicRules, now: float) -> ClassicGroup:
    """The sessions of all members begin now."""
    group = ClassicGroup(rules)
    group.generation = snapshot.generation
    group.protocol_type = snapshot.protocol_type
    group.protocol = snapshot.protocol
    for each in snapshot.members:
        member = Member(
            each.id,
            JoinRequest(
                member=each.id,
                instance=each.instance,
                client=each.client,
                protocol_type=snapshot.protocol_type,
                protocols=each.protocols,
                session_seconds=each.session_seconds,
                rebalance_seconds=each.rebalance_seconds,
            ),
        )
        member.assignment = each.assignment
        member.seen(now)
        group.members.add(member)
    if snapshot.leader in group.members:
        group.members.leader = snapshot.leader
    group.state = ClassicState.STABLE
    if not snapshot.is_stable:
        group.rebalance(now)
    group.tick(now)
    return group
