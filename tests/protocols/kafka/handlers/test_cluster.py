"""The calls that describe the node and where things are."""

from pathlib import Path

import pytest

from posthouse.protocols.kafka.codec.generated.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from posthouse.protocols.kafka.codec.generated.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from posthouse.protocols.kafka.codec.generated.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from posthouse.protocols.kafka.codec.generated.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from posthouse.protocols.kafka.codec.generated.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.wire import Wire, batch, kio_module


async def test_describe_cluster(broker: AsyncBroker, wire: Wire) -> None:
    answer = await wire.ask(DescribeClusterRequest(), DescribeClusterResponse)
    [node] = answer.brokers
    assert (node.broker_id, f"{node.host}:{node.port}") == (1, broker.kafka)
    assert (answer.controller_id, answer.cluster_id) == (1, broker.app.broker.cluster_id)
    assert answer.cluster_authorized_operations == -(2**31)
    asked = await wire.ask(
        DescribeClusterRequest(include_cluster_authorized_operations=True), DescribeClusterResponse
    )
    assert asked.cluster_authorized_operations > 0


@pytest.mark.parametrize(
    ("kind", "code"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
async def test_there_are_only_brokers(kind: int, code: ErrorCode, wire: Wire) -> None:
    answer = await wire.ask(DescribeClusterRequest(endpoint_type=kind), DescribeClusterResponse)
    assert answer.error_code == code


@pytest.mark.parametrize("kind", [0, 1])
async def test_the_coordinator_is_this_node(kind: int, broker: AsyncBroker, wire: Wire) -> None:
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["a", "b"])
    answer = await wire.ask(request, FindCoordinatorResponse)
    assert [(each.key, each.node_id, f"{each.host}:{each.port}") for each in answer.coordinators] == [
        ("a", 1, broker.kafka),
        ("b", 1, broker.kafka),
    ]
    request_v1 = kio_module("find_coordinator.v1.request").FindCoordinatorRequest
    response_v1 = kio_module("find_coordinator.v1.response").FindCoordinatorResponse
    old = await wire.ask_kio(request_v1(key="a", key_type=kind), response_v1)
    assert (old.node_id, f"{old.host}:{old.port}") == (1, broker.kafka)


async def test_nothing_else_has_a_coordinator(wire: Wire) -> None:
    request = FindCoordinatorRequest(key_type=5, coordinator_keys=["a"])
    [answer] = (await wire.ask(request, FindCoordinatorResponse)).coordinators
    assert (answer.error_code, answer.node_id) == (ErrorCode.INVALID_REQUEST, -1)


async def test_log_dirs(wire: Wire) -> None:
    topic = await wire.create_topic("t", 2)
    await wire.create_topic("u")
    one = batch(b"x" * 100)
    await wire.produce(topic, one, partition=1)
    [result] = (await wire.ask(DescribeLogDirsRequest(), DescribeLogDirsResponse)).results
    sizes = {
        (each.name, partition.partition_index): partition.partition_size
        for each in result.topics
        for partition in each.partitions
    }
    assert sizes == {("t", 0): 0, ("t", 1): len(one), ("u", 0): 0}
    request = DescribeLogDirsRequest(
        topics=[
            DescribableLogDirTopic(topic="t", partitions=[1, 9]),
            DescribableLogDirTopic(topic="unknown", partitions=[0]),
        ]
    )
    [result] = (await wire.ask(request, DescribeLogDirsResponse)).results
    [found] = result.topics
    assert [each.partition_index for each in found.partitions] == [1]


async def test_log_dirs_on_disk(tmp_path: Path) -> None:
    async with AsyncBroker(data=tmp_path / "data") as broker, Wire(broker.kafka) as wire:
        [result] = (await wire.ask(DescribeLogDirsRequest(), DescribeLogDirsResponse)).results
        assert result.log_dir == str(tmp_path / "data")
        assert 0 < result.usable_bytes < result.total_bytes


async def end(
    wire: Wire, epoch: int, current: int = -1, name: str = "t", partition: int = 0
) -> EpochEndOffset:
    wanted = OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=name, partitions=[wanted])])
    return (await wire.ask(request, OffsetForLeaderEpochResponse)).topics[0].partitions[0]


async def test_the_one_epoch(wire: Wire) -> None:
    topic = await wire.create_topic()
    await wire.produce(topic, batch(b"a", b"b"))
    known = await end(wire, 0)
    assert (known.error_code, known.leader_epoch, known.end_offset) == (0, 0, 2)
    later = await end(wire, 5)
    assert (later.error_code, later.leader_epoch, later.end_offset) == (0, -1, -1)
    assert (await end(wire, 0, current=4)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert (await end(wire, 0, name="unknown")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await end(wire, 0, partition=8)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def pages(wire: Wire, limit: int, *names: str) -> list[list[tuple[str | None, list[int]]]]:
    """All pages: for each the topics with their partitions."""
    result = []
    cursor: Cursor | None = None
    while True:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=cursor,
        )
        answer = await wire.ask(request, DescribeTopicPartitionsResponse)
        result.append(
            [(topic.name, [each.partition_index for each in topic.partitions]) for topic in answer.topics]
        )
        cursor = answer.next_cursor
        if cursor is None:
            return result


async def test_partitions_in_pages(wire: Wire) -> None:
    await wire.create_topic("b", 3)
    await wire.create_topic("a", 2)
    assert await pages(wire, 100) == [[("a", [0, 1]), ("b", [0, 1, 2])]]
    assert await pages(wire, 2) == [[("a", [0, 1])], [("b", [0, 1])], [("b", [2])]]
    assert await pages(wire, 3) == [[("a", [0, 1]), ("b", [0])], [("b", [1, 2])]]
    assert await pages(wire, 100, "b", "unknown") == [[("b", [0, 1, 2]), ("unknown", [])]]


async def test_partitions_of_what_is_not_there(wire: Wire) -> None:
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="x"), TopicRequest(name="a/b")])
    answer = await wire.ask(request, DescribeTopicPartitionsResponse)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    bad = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name="x")], cursor=Cursor(topic_name="x", partition_index=-1)
    )
    [refused] = (await wire.ask(bad, DescribeTopicPartitionsResponse)).topics
    assert refused.error_code == ErrorCode.INVALID_REQUEST
