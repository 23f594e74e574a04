"""ShareGroupHeartbeat, ShareGroupDescribe, and share groups in the calls for groups of other kinds."""

import asyncio

from posthouse.protocols.kafka.codec.generated.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from posthouse.protocols.kafka.codec.generated.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from posthouse.protocols.kafka.codec.generated.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from posthouse.protocols.kafka.codec.generated.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from posthouse.protocols.kafka.codec.generated.join_group import JoinGroupResponse
from posthouse.protocols.kafka.codec.generated.list_groups import ListGroupsRequest, ListGroupsResponse
from posthouse.protocols.kafka.codec.generated.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from posthouse.protocols.kafka.codec.generated.share_group_heartbeat import ShareGroupHeartbeatResponse
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.handlers import group_wire
from tests.protocols.kafka.handlers.share_wire import Member, beat, joined, set_defaults
from tests.protocols.kafka.wire import Wire, batch


def assigned(answer: ShareGroupHeartbeatResponse) -> list[int] | None:
    if answer.assignment is None:
        return None
    return [index for topic in answer.assignment.topic_partitions for index in topic.partitions]


async def described(wire: Wire, group: str = "g") -> ShareGroupDescribeResponse:
    return await wire.ask(ShareGroupDescribeRequest(group_ids=[group]), ShareGroupDescribeResponse)


async def listed(wire: Wire, **filters: list[str]) -> list[tuple[str, str, str, str]]:
    answer = await wire.ask(ListGroupsRequest(**filters), ListGroupsResponse)
    return [(each.group_id, each.protocol_type, each.group_state, each.group_type) for each in answer.groups]


async def test_every_member_reads_every_partition(wire: Wire) -> None:
    await wire.create_topic("t", 3)
    first = await beat(wire, "a")
    assert (first.error_code, first.member_id, first.heartbeat_interval_ms) == (0, "a", 5000)
    assert (first.member_epoch > 0, assigned(first)) == (True, [0, 1, 2])
    second = await beat(wire, "b")
    assert (second.member_epoch > first.member_epoch, assigned(second)) == (True, [0, 1, 2])
    told = await beat(wire, "a", first.member_epoch)
    assert (told.member_epoch, assigned(told)) == (second.member_epoch, None)
    # The answer was lost: the member says again what it knew.
    assert (await beat(wire, "a", first.member_epoch)).member_epoch == told.member_epoch
    fenced = await beat(wire, "a", told.member_epoch + 5)
    assert fenced.error_code == ErrorCode.FENCED_MEMBER_EPOCH


async def test_topics_that_grow_or_appear_are_told(wire: Wire) -> None:
    await wire.create_topic("t", 1)
    joined_ = await beat(wire, "a", subscribed_topic_names=["t", "later"])
    assert assigned(joined_) == [0]
    await wire.create_topic("later", 2)
    told = await beat(wire, "a", joined_.member_epoch)
    assert (sorted(assigned(told) or []), told.member_epoch > joined_.member_epoch) == ([0, 0, 1], True)
    topic = CreatePartitionsTopic(name="t", count=3)
    await wire.ask(CreatePartitionsRequest(topics=[topic], timeout_ms=1000), CreatePartitionsResponse)
    assert sorted(assigned(await beat(wire, "a", told.member_epoch)) or []) == [0, 0, 1, 1, 2]


async def test_senseless_heartbeats(wire: Wire) -> None:
    await wire.create_topic("t")
    assert (await beat(wire, "a", 0, group="")).error_code == ErrorCode.INVALID_GROUP_ID
    assert (await beat(wire, "")).error_code == ErrorCode.INVALID_REQUEST
    assert (await beat(wire, "a", -2)).error_code == ErrorCode.INVALID_REQUEST
    assert (await beat(wire, "a", 0, subscribed_topic_names=[])).error_code == ErrorCode.INVALID_REQUEST
    assert (await beat(wire, "a", 3)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    await beat(wire, "a")
    assert (await beat(wire, "b", 3)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await beat(wire, "b", -1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_members_that_leave_or_fall_silent(broker: AsyncBroker, wire: Wire) -> None:
    await wire.create_topic("t")
    set_defaults(broker, share_session_timeout_ms=1000, share_heartbeat_interval_ms=500)
    first = await beat(wire, "a")
    assert first.heartbeat_interval_ms == 500
    second = await beat(wire, "b")
    assert (await beat(wire, "b", -1)).member_epoch == -1
    assert (await beat(wire, "b", second.member_epoch)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    while await listed(wire) != [("g", "share", "Empty", "share")]:
        await asyncio.sleep(0.05)
    assert (await beat(wire, "a", first.member_epoch)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert await listed(wire) == [("g", "share", "Empty", "share")]


async def test_who_falls_silent_loses_its_leases(broker: AsyncBroker, wire: Wire) -> None:
    set_defaults(broker, share_session_timeout_ms=1000, share_heartbeat_interval_ms=500)
    member = await joined(wire)
    await wire.produce(member.topic, batch(b"a"))
    await member.take()
    await asyncio.sleep(0.9)
    await beat(wire, "n")
    got = await Member(wire, member.topic, "n").take(max_wait_ms=30_000)
    assert got is not None
    assert got.runs == [(0, 0, 2)]


async def test_describe(wire: Wire) -> None:
    topic = await wire.create_topic("t", 2)
    answer = await beat(wire, "a", rack_id="r1")
    [group] = (await described(wire)).groups
    assert (group.error_code, group.group_state, group.assignor_name) == (0, "Stable", "simple")
    assert group.group_epoch == group.assignment_epoch == answer.member_epoch
    [member] = group.members
    assert (member.member_id, member.rack_id, member.client_id) == ("a", "r1", "test")
    assert (member.client_host, member.subscribed_topic_names) == ("/127.0.0.1", ["t"])
    assert member.assignment is not None
    [part] = member.assignment.topic_partitions
    assert (part.topic_id, part.topic_name, part.partitions) == (topic, "t", [0, 1])
    await beat(wire, "a", -1)
    [group] = (await described(wire)).groups
    assert (group.group_state, group.members) == ("Empty", [])
    assert (await described(wire, "?")).groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_share_groups_are_listed_with_the_others(wire: Wire) -> None:
    await wire.create_topic("t")
    await beat(wire, "a")
    await group_wire.beat(wire, "c", group_id="consumers")
    assert sorted(await listed(wire)) == [
        ("consumers", "consumer", "Stable", "consumer"),
        ("g", "share", "Stable", "share"),
    ]
    assert await listed(wire, types_filter=["share"]) == [("g", "share", "Stable", "share")]
    assert await listed(wire, states_filter=["empty"], types_filter=["Share"]) == []


async def test_a_share_group_is_no_other_group(wire: Wire) -> None:
    topic = await wire.create_topic("t")
    await beat(wire, "a")
    consumer = await group_wire.beat(wire, "c")
    assert consumer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    classic = await wire.ask(group_wire.join_request(), JoinGroupResponse)
    assert classic.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    [group] = (await wire.ask(DescribeGroupsRequest(groups=["g"]), DescribeGroupsResponse)).groups
    assert (group.error_code, group.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    request = ConsumerGroupDescribeRequest(group_ids=["g"])
    answer = await wire.ask(request, ConsumerGroupDescribeResponse)
    assert answer.groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    committed = await group_wire.commit(wire, topic, {0: 5})
    assert committed == [ErrorCode.GROUP_ID_NOT_FOUND]
    offsets = await group_wire.fetch_offsets(wire, topic, [0])
    assert offsets.error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_another_group_is_no_share_group(wire: Wire) -> None:
    topic = await wire.create_topic("t")
    await group_wire.beat(wire, "c")
    assert (await beat(wire, "a")).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (await described(wire)).groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (await Member(wire, topic).ask_fetch(0)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    await group_wire.commit(wire, topic, {0: 5}, group="offsets")
    assert (await beat(wire, "a", group="offsets")).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_share_group_is_deleted_with_its_progress(wire: Wire) -> None:
    async def delete() -> int:
        answer = await wire.ask(DeleteGroupsRequest(groups_names=["g"]), DeleteGroupsResponse)
        return answer.results[0].error_code

    member = await joined(wire)
    await wire.produce(member.topic, batch(b"a"))
    await member.take()
    await member.acknowledge({0: [(0, 0, [1])]})
    assert await delete() == ErrorCode.NON_EMPTY_GROUP
    await beat(wire, "m", -1)
    assert await delete() == 0
    assert await delete() == ErrorCode.GROUP_ID_NOT_FOUND
    assert await listed(wire) == []
    assert (await beat(wire, "m")).error_code == 0
    got = await Member(wire, member.topic).take()
    assert got is not None
    assert got.runs == [(0, 0, 1)]
