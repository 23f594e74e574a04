"""ConsumerGroupHeartbeat and ConsumerGroupDescribe."""

from datetime import timedelta

import pytest
from kio.schema.consumer_group_heartbeat.v0.request import ConsumerGroupHeartbeatRequest as BeatV0
from kio.schema.consumer_group_heartbeat.v0.response import ConsumerGroupHeartbeatResponse as AnswerV0
from kio.schema.types import GroupId as KioGroupId
from kio.schema.types import TopicName
from kio.static.primitive import i32, i32Timedelta

from posthouse.protocols.kafka.codec.generated.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from posthouse.protocols.kafka.codec.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from posthouse.protocols.kafka.errors import ErrorCode
from tests.protocols.kafka.handlers.group_wire import beat, join, join_alone
from tests.protocols.kafka.wire import Wire


def shares(answer: ConsumerGroupHeartbeatResponse) -> list[int] | None:
    if answer.assignment is None:
        return None
    return [index for topic in answer.assignment.topic_partitions for index in topic.partitions]


async def test_members_share(wire: Wire) -> None:
    topic = await wire.create_topic("t", 4)
    first = await beat(wire, "a")
    assert (first.error_code, first.member_id, first.member_epoch) == (0, "a", 1)
    assert (shares(first), first.heartbeat_interval_ms) == ([0, 1, 2, 3], 1000)
    second = await beat(wire, "b")
    assert (second.member_epoch, shares(second)) == (2, [])
    told = await beat(wire, "a", 1)
    keeps = shares(told)
    assert keeps is not None
    assert len(keeps) == 2
    done = await beat(wire, "a", 1, topic_partitions=[TopicPartitions(topic_id=topic, partitions=keeps)])
    assert (done.member_epoch, shares(done)) == (2, None)
    assert sorted(keeps + (shares(await beat(wire, "b", 2)) or [])) == [0, 1, 2, 3]
    assert (await beat(wire, "b", -1)).member_epoch == -1
    assert (await beat(wire, "b", 2)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_the_first_version_gives_out_ids(wire: Wire) -> None:
    await wire.create_topic("t", 1)
    request = BeatV0(
        group_id=KioGroupId("g"),
        member_id="",
        member_epoch=i32(0),
        subscribed_topic_names=(TopicName("t"),),
        server_assignor=None,
        topic_partitions=(),
        rebalance_timeout=i32Timedelta.parse(timedelta(seconds=10)),
    )
    answer = await wire.ask_kio(request, AnswerV0)
    assert answer.error_code == 0
    assert len(answer.member_id) == 36


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"server_assignor": "mine"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"member_epoch": 7}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
async def test_refused(wire: Wire, fields: dict[str, object], code: ErrorCode) -> None:
    answer = await beat(wire, "m", **fields)  # type: ignore[arg-type]
    assert answer.error_code == code
    assert answer.error_message


async def test_fencing(wire: Wire) -> None:
    await wire.create_topic("t", 1)
    await beat(wire, "m", instance_id="i")
    assert (await beat(wire, "m", 5, instance_id="i")).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert (await beat(wire, "n", instance_id="i")).error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert (await beat(wire, "m", -2, instance_id="i")).member_epoch == -2
    back = await beat(wire, "n", instance_id="i")
    assert (back.error_code, shares(back)) == (0, [0])
    assert (await beat(wire, "m", 1, instance_id="i")).error_code == ErrorCode.FENCED_INSTANCE_ID


async def test_expressions(wire: Wire) -> None:
    await wire.create_topic("t1", 1)
    first = await beat(wire, "m", subscribed_topic_names=[], subscribed_topic_regex="t.*")
    assert shares(first) == [0]
    await wire.create_topic("t2", 1)
    assert shares(await beat(wire, "m", first.member_epoch)) == [0, 0]


@pytest.mark.parametrize("text", [r"(?i)T1", r"[[:alpha:]]\d", r"(?s).1", r"\pL1", r"\Qt1\E"])
async def test_expressions_are_those_of_re2(text: str, wire: Wire) -> None:
    await wire.create_topic("t1", 1)
    await wire.create_topic("longer-t1", 1)
    answer = await beat(wire, "m", subscribed_topic_names=[], subscribed_topic_regex=text)
    assert (answer.error_code, shares(answer)) == (0, [0])


async def test_describing(wire: Wire) -> None:
    topic = await wire.create_topic("t", 2)
    await beat(wire, "m", server_assignor="range", rack_id="r", subscribed_topic_regex="t.*")
    await join_alone(wire, "classic")
    request = ConsumerGroupDescribeRequest(group_ids=["g", "classic", "nobody"])
    group, classic, nobody = (await wire.ask(request, ConsumerGroupDescribeResponse)).groups
    assert (group.error_code, group.group_state, group.group_epoch, group.assignment_epoch) == (
        0,
        "Stable",
        1,
        1,
    )
    assert group.assignor_name == "range"
    [member] = group.members
    assert (member.member_id, member.rack_id, member.member_epoch, member.client_id) == ("m", "r", 1, "test")
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (["t"], "t.*")
    assert member.member_type == 1
    for assignment in (member.assignment, member.target_assignment):
        assert assignment is not None
        [share] = assignment.topic_partitions
        assert (share.topic_id, share.topic_name, share.partitions) == (topic, "t", [0, 1])
    assert classic.error_code == nobody.error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_group_that_is_empty_may_change_its_kind(wire: Wire) -> None:
    await wire.create_topic("t", 1)
    await beat(wire, "m")
    await beat(wire, "m", -1)
    joined = await join(wire)
    assert joined.error_code == 0
