"""Classic groups on the wire: join, sync, heartbeat, leave, and looking at them."""

import asyncio
from datetime import timedelta

import pytest
from kio.schema.join_group.v0.request import JoinGroupRequest as JoinV0
from kio.schema.join_group.v0.request import JoinGroupRequestProtocol as ProtocolV0
from kio.schema.join_group.v0.response import JoinGroupResponse as JoinedV0
from kio.schema.leave_group.v1.request import LeaveGroupRequest as LeaveV1
from kio.schema.leave_group.v1.response import LeaveGroupResponse as LeftV1
from kio.schema.types import GroupId as KioGroupId
from kio.static.primitive import i32Timedelta

from posthouse.model.ids import GroupId
from posthouse.protocols.kafka.codec.generated.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from posthouse.protocols.kafka.codec.generated.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from posthouse.protocols.kafka.codec.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from posthouse.protocols.kafka.codec.generated.join_group import JoinGroupRequestProtocol, JoinGroupResponse
from posthouse.protocols.kafka.codec.generated.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from posthouse.protocols.kafka.codec.generated.list_groups import ListGroupsRequest, ListGroupsResponse
from posthouse.protocols.kafka.codec.generated.sync_group import SyncGroupRequest, SyncGroupResponse
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.handlers.group_wire import SUBSCRIBES_TO_T, commit, join, join_alone, join_request
from tests.protocols.kafka.wire import Wire


async def heartbeat(wire: Wire, member: str, generation: int, group: str = "g") -> int:
    request = HeartbeatRequest(group_id=group, member_id=member, generation_id=generation)
    return (await wire.ask(request, HeartbeatResponse)).error_code


async def leave(wire: Wire, *members: MemberIdentity, group: str = "g") -> list[int]:
    answer = await wire.ask(LeaveGroupRequest(group_id=group, members=list(members)), LeaveGroupResponse)
    return [answer.error_code, *(member.error_code for member in answer.members)]


async def test_a_member_comes_stays_and_goes(wire: Wire) -> None:
    joined = await join_alone(wire)
    assert (joined.leader, joined.generation_id, joined.protocol_name) == (joined.member_id, 1, "range")
    assert [(each.member_id, each.metadata) for each in joined.members] == [
        (joined.member_id, SUBSCRIBES_TO_T)
    ]
    assert await heartbeat(wire, joined.member_id, 1) == 0
    assert await heartbeat(wire, joined.member_id, 2) == ErrorCode.ILLEGAL_GENERATION
    assert await heartbeat(wire, "somebody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert await leave(wire, MemberIdentity(member_id=joined.member_id)) == [0, 0]
    assert await heartbeat(wire, joined.member_id, 1) == ErrorCode.UNKNOWN_MEMBER_ID


async def test_two_members(wire: Wire, broker: AsyncBroker) -> None:
    first = await join_alone(wire)
    async with Wire(broker.kafka) as other:
        id_given = await other.ask(join_request(), JoinGroupResponse)
        joining = other.send(join_request(member=id_given.member_id))
        while await heartbeat(wire, first.member_id, 1) == 0:
            await asyncio.sleep(0.01)
        assert await heartbeat(wire, first.member_id, 1) == ErrorCode.REBALANCE_IN_PROGRESS
        again = await join(wire, member=first.member_id)
        second = await other.receive(joining)
        assert isinstance(second, JoinGroupResponse)
        assert (second.generation_id, second.leader, second.members) == (2, first.member_id, [])
        assert {each.member_id for each in again.members} == {first.member_id, second.member_id}


async def test_the_oldest_version(wire: Wire) -> None:
    request = JoinV0(
        group_id=KioGroupId("g"),
        session_timeout=i32Timedelta.parse(timedelta(seconds=10)),
        member_id="",
        protocol_type="consumer",
        protocols=(ProtocolV0(name="range", metadata=SUBSCRIBES_TO_T),),
    )
    joined = await wire.ask_kio(request, JoinedV0)
    assert joined.error_code == 0
    assert joined.leader == joined.member_id
    left = await wire.ask_kio(LeaveV1(group_id=KioGroupId("g"), member_id=joined.member_id), LeftV1)
    assert left.error_code == 0
    left = await wire.ask_kio(LeaveV1(group_id=KioGroupId("g"), member_id=joined.member_id), LeftV1)
    assert left.error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 10}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 10_000_000}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member": "x"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
async def test_refused(wire: Wire, fields: dict[str, object], code: ErrorCode) -> None:
    answer = await wire.ask(join_request(**fields), JoinGroupResponse)  # type: ignore[arg-type]
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (code, -1, None)


async def test_another_protocol(wire: Wire) -> None:
    joined = await join_alone(wire)
    other = await join(wire, protocols=[JoinGroupRequestProtocol(name="sticky")])
    assert other.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    request = SyncGroupRequest(
        group_id="g", generation_id=1, member_id=joined.member_id, protocol_type="consumer", protocol_name="x"
    )
    assert (await wire.ask(request, SyncGroupResponse)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


async def test_a_static_member_comes_back(wire: Wire) -> None:
    first = await join_alone(wire, group_instance_id="i")
    again = await join(wire, group_instance_id="i")
    assert (again.generation_id, again.skip_assignment) == (1, True)
    assert again.member_id != first.member_id
    request = HeartbeatRequest(
        group_id="g", generation_id=1, member_id=first.member_id, group_instance_id="i"
    )
    assert (await wire.ask(request, HeartbeatResponse)).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert await leave(
        wire,
        MemberIdentity(member_id="wrong", group_instance_id="i"),
        MemberIdentity(group_instance_id="i"),
        MemberIdentity(group_instance_id="j"),
    ) == [0, ErrorCode.FENCED_INSTANCE_ID, 0, ErrorCode.UNKNOWN_MEMBER_ID]


async def test_listing(wire: Wire) -> None:
    topic = await wire.create_topic()
    await join_alone(wire, "members")
    await commit(wire, topic, {0: 1}, group="offsets")

    async def listed(**filters: list[str]) -> dict[str, tuple[str, str, str]]:
        answer = await wire.ask(ListGroupsRequest(**filters), ListGroupsResponse)
        return {
            each.group_id: (each.protocol_type, each.group_state, each.group_type) for each in answer.groups
        }

    assert await listed() == {
        "members": ("consumer", "Stable", "classic"),
        "offsets": ("", "Empty", "classic"),
    }
    assert list(await listed(states_filter=["stable"])) == ["members"]
    assert list(await listed(types_filter=["Consumer"])) == []


async def test_describing(wire: Wire) -> None:
    joined = await join_alone(wire)
    topic = await wire.create_topic()
    await commit(wire, topic, {0: 1}, group="offsets")
    request = DescribeGroupsRequest(groups=["g", "offsets", "nobody"], include_authorized_operations=True)
    group, offsets, nobody = (await wire.ask(request, DescribeGroupsResponse)).groups
    assert (group.error_code, group.group_state, group.protocol_type, group.protocol_data) == (
        0,
        "Stable",
        "consumer",
        "range",
    )
    [member] = group.members
    assert (member.member_id, member.client_id, member.client_host) == (
        joined.member_id,
        "test",
        "/127.0.0.1",
    )
    assert (member.member_metadata, member.member_assignment) == (SUBSCRIBES_TO_T, b"mine")
    assert group.authorized_operations > 0
    assert (offsets.error_code, offsets.group_state) == (0, "Empty")
    assert (nobody.error_code, nobody.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")


async def test_deleting(wire: Wire) -> None:
    joined = await join_alone(wire)
    request = DeleteGroupsRequest(groups_names=["g", "nobody"])

    async def delete() -> list[int]:
        return [each.error_code for each in (await wire.ask(request, DeleteGroupsResponse)).results]

    assert await delete() == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND]
    await leave(wire, MemberIdentity(member_id=joined.member_id))
    assert await delete() == [0, ErrorCode.GROUP_ID_NOT_FOUND]
    assert await delete() == [ErrorCode.GROUP_ID_NOT_FOUND] * 2


async def test_a_stop_lets_members_go(broker: AsyncBroker) -> None:
    """Or it would take as long as the slowest member."""
    async with Wire(broker.kafka) as first, Wire(broker.kafka) as second:
        await join_alone(first)
        given = await second.ask(join_request(), JoinGroupResponse)
        waiting = second.send(join_request(member=given.member_id))
        while len(broker.app.broker.groups.describe(GroupId("g")).members) != 2:
            await asyncio.sleep(0.01)
        broker.app.broker.wake_readers()
        answer = await second.receive(waiting)
        assert isinstance(answer, JoinGroupResponse)
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
