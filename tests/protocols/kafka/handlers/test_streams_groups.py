"""Streams groups (KIP-1071) over the wire: heartbeats, internal topics, descriptions, other calls."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from posthouse.client import Client
from posthouse.client.groups import GroupInfo, GroupProtocol
from posthouse.protocols.kafka.codec.generated import streams_group_heartbeat as streams
from posthouse.protocols.kafka.codec.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from posthouse.protocols.kafka.codec.generated.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from posthouse.protocols.kafka.codec.generated.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from posthouse.protocols.kafka.codec.generated.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from posthouse.protocols.kafka.codec.generated.list_groups import ListGroupsRequest, ListGroupsResponse
from posthouse.protocols.kafka.codec.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from posthouse.protocols.kafka.codec.generated.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.wire import Wire

READ = streams.Subtopology(subtopology_id="0", source_topics=["t"], repartition_sink_topics=["app-r"])
COUNT = streams.Subtopology(
    subtopology_id="1",
    repartition_source_topics=[
        streams.TopicInfo(name="app-r", topic_configs=[streams.KeyValue(key="retention.ms", value="-1")])
    ],
    state_changelog_topics=[
        streams.TopicInfo(
            name="app-c", topic_configs=[streams.KeyValue(key="cleanup.policy", value="compact")]
        )
    ],
    copartition_groups=[streams.CopartitionGroup(repartition_source_topics=[0])],
)
DELAYED, MISSING = 5, 3


def topology(*subtopologies: streams.Subtopology) -> streams.Topology:
    return streams.Topology(epoch=0, subtopologies=list(subtopologies or (READ, COUNT)))


async def beat(wire: Wire, epoch: int, **fields: Any) -> streams.StreamsGroupHeartbeatResponse:
    if epoch == 0:
        fields = {
            "rebalance_timeout_ms": 5000,
            "topology": topology(),
            "process_id": "p",
            "active_tasks": [],
            "standby_tasks": [],
            "warmup_tasks": [],
        } | fields
    fields = {"group_id": "app", "member_id": "m", "topology": None} | fields
    for name in ("active_tasks", "standby_tasks", "warmup_tasks", "client_tags"):
        fields.setdefault(name, None)
    fields.setdefault("task_offsets", None)
    fields.setdefault("task_end_offsets", None)
    request = streams.StreamsGroupHeartbeatRequest(member_epoch=epoch, **fields)
    return await wire.ask(request, streams.StreamsGroupHeartbeatResponse)


async def joined(wire: Wire, partitions: int = 2) -> streams.StreamsGroupHeartbeatResponse:
    """With its tasks: the first heartbeat creates the internal topics, the second finds them."""
    await wire.create_topic("t", partitions)
    first = await beat(wire, 0)
    assert first.error_code == 0, first.error_message
    return await beat(wire, first.member_epoch)


def shown(tasks: list[streams.TaskIds] | None) -> dict[str, list[int]] | None:
    return None if tasks is None else {each.subtopology_id: each.partitions for each in tasks}


async def described(wire: Wire, group: str = "app") -> DescribedGroup:
    request = StreamsGroupDescribeRequest(group_ids=[group], include_authorized_operations=True)
    [answer] = (await wire.ask(request, StreamsGroupDescribeResponse)).groups
    return answer


@pytest.fixture
def prompt() -> AsyncBroker:
    """Does not wait for more members."""
    return AsyncBroker(group_initial_rebalance_ms=0)


async def test_internal_topics_are_created_and_tasks_assigned(prompt: AsyncBroker) -> None:
    async with prompt as broker, Wire(broker.kafka) as wire:
        await wire.create_topic("t", 2)
        first = await beat(wire, 0)
        assert [(each.status_code, each.status_detail) for each in first.status or ()] == [
            (MISSING, "Internal topics are missing: app-c, app-r")
        ]
        assert shown(first.active_tasks) == {}
        assert first.heartbeat_interval_ms == 1000
        topics = {topic.name: topic for topic in broker.app.broker.topics}
        assert {name: topic.partitions for name, topic in topics.items()} == {"t": 2, "app-r": 2, "app-c": 2}
        assert topics["app-c"].config.is_compacted
        assert topics["app-r"].config.retention_ms == -1
        second = await beat(wire, first.member_epoch)
        assert (second.status, shown(second.active_tasks)) == ([], {"0": [0, 1], "1": [0, 1]})
        third = await beat(wire, second.member_epoch)
        assert (third.active_tasks, third.member_epoch) == (None, second.member_epoch)
        left = await beat(wire, -1)
        assert (left.error_code, left.member_epoch) == (0, -1)


async def test_a_new_group_waits_for_more_members(wire: Wire) -> None:
    await wire.create_topic("t", 2)
    answer = await beat(wire, 0)
    assert DELAYED in [each.status_code for each in answer.status or ()]
    assert answer.member_epoch == 1


async def test_an_internal_topic_that_cannot_be_created(prompt: AsyncBroker) -> None:
    bad = streams.KeyValue(key="retention.ms", value="soon")
    changelog = streams.TopicInfo(name="app-c", topic_configs=[bad])
    one = streams.Subtopology(subtopology_id="0", source_topics=["t"], state_changelog_topics=[changelog])
    async with prompt as broker, Wire(broker.kafka) as wire:
        await wire.create_topic("t", 2)
        answer = await beat(wire, 0, topology=topology(one))
        [status] = answer.status or []
        assert status.status_code == MISSING
        assert "; Creation failed: app-c (retention.ms=soon" in status.status_detail


REFUSED: dict[str, tuple[int, dict[str, Any], ErrorCode]] = {
    "unknown member": (3, {"member_id": "x"}, ErrorCode.UNKNOWN_MEMBER_ID),
    "epoch": (99, {}, ErrorCode.FENCED_MEMBER_EPOCH),
    "no group": (0, {"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
    "unknown group": (3, {"group_id": "x"}, ErrorCode.UNKNOWN_MEMBER_ID),
    "no member": (0, {"member_id": ""}, ErrorCode.INVALID_REQUEST),
    "no topology": (0, {"topology": None}, ErrorCode.INVALID_REQUEST),
    "no timeout": (0, {"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
    "static": (0, {"instance_id": "i"}, ErrorCode.INVALID_REQUEST),
    "static leave": (-2, {}, ErrorCode.INVALID_REQUEST),
    "some tasks": (0, {"standby_tasks": None}, ErrorCode.INVALID_REQUEST),
    "warm-up": (0, {"warmup_tasks": [streams.TaskIds(subtopology_id="0")]}, ErrorCode.INVALID_REQUEST),
    "offsets": (0, {"task_offsets": []}, ErrorCode.INVALID_REQUEST),
    "another topology": (0, {"topology": topology(READ)}, ErrorCode.INVALID_REQUEST),
    "expression": (
        0,
        {"topology": topology(streams.Subtopology(source_topic_regex=["x"]))},
        ErrorCode.STREAMS_INVALID_TOPOLOGY,
    ),
    "topic name": (
        0,
        {"topology": topology(streams.Subtopology(source_topics=["a/b"]))},
        ErrorCode.STREAMS_INVALID_TOPOLOGY,
    ),
    "internal topic": (
        0,
        {"topology": topology(streams.Subtopology(source_topics=["__consumer_offsets"]))},
        ErrorCode.STREAMS_INVALID_TOPOLOGY,
    ),
    "too many topics": (
        0,
        {"topology": topology(streams.Subtopology(source_topics=[f"t{number}" for number in range(1001)]))},
        ErrorCode.STREAMS_INVALID_TOPOLOGY,
    ),
    "too much text": (
        0,
        {
            "topology": topology(
                streams.Subtopology(
                    state_changelog_topics=[
                        streams.TopicInfo(
                            name="c", topic_configs=[streams.KeyValue(key="k", value="v" * 30_000)] * 40
                        )
                    ]
                )
            )
        },
        ErrorCode.STREAMS_INVALID_TOPOLOGY,
    ),
    "twice": (0, {"topology": topology(READ, READ)}, ErrorCode.STREAMS_INVALID_TOPOLOGY),
    "never written": (
        0,
        {"topology": topology(COUNT), "group_id": "new"},
        ErrorCode.STREAMS_INVALID_TOPOLOGY,
    ),
    "copartition": (
        0,
        {
            "topology": topology(
                streams.Subtopology(
                    source_topics=["t"], copartition_groups=[streams.CopartitionGroup(source_topics=[1])]
                )
            )
        },
        ErrorCode.STREAMS_INVALID_TOPOLOGY,
    ),
}


async def test_what_is_refused(prompt: AsyncBroker) -> None:
    async with prompt as broker, Wire(broker.kafka) as wire:
        await joined(wire)
        for name, (epoch, fields, code) in REFUSED.items():
            answer = await beat(wire, epoch, **fields)
            assert (name, answer.error_code) == (name, code)
            assert answer.error_message


async def test_description(prompt: AsyncBroker) -> None:
    async with prompt as broker, Wire(broker.kafka) as wire:
        answer = await joined(wire)
        group = await described(wire)
        assert (group.error_code, group.group_state) == (0, "Stable")
        assert group.group_epoch == group.assignment_epoch == answer.member_epoch
        assert group.authorized_operations > 0
        assert group.topology is not None
        [read, count] = group.topology.subtopologies or []
        assert (read.source_topics, read.repartition_sink_topics) == (["t"], ["app-r"])
        [changelog] = count.state_changelog_topics
        assert (changelog.name, changelog.partitions) == ("app-c", 2)
        [member] = group.members
        assert (member.member_id, member.process_id, member.topology_epoch) == ("m", "p", 0)
        assert {each.subtopology_id: each.partitions for each in member.assignment.active_tasks} == {
            "0": [0, 1],
            "1": [0, 1],
        }
        assert len(member.target_assignment.active_tasks) == 2
        unknown = await described(wire, "unknown")
        assert (unknown.error_code, unknown.topology) == (ErrorCode.GROUP_ID_NOT_FOUND, None)


async def listed(wire: Wire) -> list[tuple[str, str, str, str]]:
    answer = await wire.ask(ListGroupsRequest(), ListGroupsResponse)
    return [(each.group_id, each.group_type, each.group_state, each.protocol_type) for each in answer.groups]


async def commit(wire: Wire, topic: bytes, member: str, epoch: int, partition: int = 0) -> int:
    partitions = [OffsetCommitRequestPartition(partition_index=partition, committed_offset=7)]
    request = OffsetCommitRequest(
        group_id="app",
        member_id=member,
        generation_id_or_member_epoch=epoch,
        topics=[OffsetCommitRequestTopic(topic_id=topic, partitions=partitions)],
    )
    answer = await wire.ask(request, OffsetCommitResponse)
    return answer.topics[0].partitions[0].error_code


async def test_other_calls_about_a_streams_group(prompt: AsyncBroker) -> None:
    async with prompt as broker, Wire(broker.kafka) as wire:
        answer = await joined(wire)
        topic = broker.app.broker.topic("t").id
        assert await listed(wire) == [("app", "streams", "Stable", "streams")]
        assert await commit(wire, topic, "m", answer.member_epoch) == 0
        assert await commit(wire, topic, "m", answer.member_epoch - 1) == ErrorCode.STALE_MEMBER_EPOCH
        assert await commit(wire, topic, "x", answer.member_epoch) == ErrorCode.UNKNOWN_MEMBER_ID
        consumer = ConsumerGroupHeartbeatRequest(
            group_id="app", member_id="c", rebalance_timeout_ms=1, subscribed_topic_names=["t"]
        )
        answered = await wire.ask(consumer, ConsumerGroupHeartbeatResponse)
        assert answered.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        classic = JoinGroupRequest(
            group_id="app",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=1000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        refused = await wire.ask(classic, JoinGroupResponse)
        assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        old = await wire.ask(DescribeGroupsRequest(groups=["app"]), DescribeGroupsResponse)
        assert old.groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
        delete = DeleteGroupsRequest(groups_names=["app"])
        [result] = (await wire.ask(delete, DeleteGroupsResponse)).results
        assert result.error_code == ErrorCode.NON_EMPTY_GROUP
        await beat(wire, -1)
        assert await listed(wire) == [("app", "streams", "Empty", "streams")]
        [result] = (await wire.ask(delete, DeleteGroupsResponse)).results
        assert result.error_code == 0
        assert await listed(wire) == []


async def test_a_consumer_group_is_no_streams_group(wire: Wire) -> None:
    await wire.create_topic("t", 1)
    consumer = ConsumerGroupHeartbeatRequest(
        group_id="app", member_id="c", rebalance_timeout_ms=1, subscribed_topic_names=["t"]
    )
    assert (await wire.ask(consumer, ConsumerGroupHeartbeatResponse)).error_code == 0
    assert (await beat(wire, 0)).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_group_stays_a_streams_group_over_a_restart(tmp_path: Path) -> None:
    async with AsyncBroker(data=tmp_path, group_initial_rebalance_ms=0) as broker, Wire(broker.kafka) as wire:
        answer = await joined(wire)
        assert await commit(wire, broker.app.broker.topic("t").id, "m", answer.member_epoch) == 0
    async with AsyncBroker(data=tmp_path, group_initial_rebalance_ms=0) as broker, Wire(broker.kafka) as wire:
        assert await listed(wire) == [("app", "streams", "Empty", "streams")]
        group = await described(wire)
        assert group.topology is not None
        assert [each.subtopology_id for each in group.topology.subtopologies or ()] == ["0", "1"]
        # The member is told that it is unknown, and joins again.
        assert (await beat(wire, answer.member_epoch)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        back = await beat(wire, 0)
        assert (back.status, shown(back.active_tasks)) == ([], {"0": [0, 1], "1": [0, 1]})
        await beat(wire, -1)
        [result] = (await wire.ask(DeleteGroupsRequest(groups_names=["app"]), DeleteGroupsResponse)).results
        assert result.error_code == 0
    async with AsyncBroker(data=tmp_path) as broker, Wire(broker.kafka) as wire:
        assert await listed(wire) == []


async def test_our_own_client_shows_the_group(prompt: AsyncBroker) -> None:
    def looked_at(kafka: str) -> tuple[list[GroupInfo], GroupInfo]:
        with Client(kafka) as client:
            return client.groups(), client.group("app")

    async with prompt as broker, Wire(broker.kafka) as wire:
        await joined(wire)
        listed, found = await asyncio.to_thread(looked_at, broker.kafka)
        assert [(each.name, each.protocol, each.state) for each in listed] == [
            ("app", GroupProtocol.STREAMS, "Stable")
        ]
        [member] = found.members
        assert [(each.topic, each.partition) for each in member.partitions] == [
            ("app-r", 0),
            ("app-r", 1),
            ("t", 0),
            ("t", 1),
        ]
