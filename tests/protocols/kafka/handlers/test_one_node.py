"""The calls that move partitions between nodes and directories: here there is one of each."""

from pathlib import Path

import pytest

from posthouse.protocols.kafka.codec.generated import alter_partition_reassignments as reassignments
from posthouse.protocols.kafka.codec.generated.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from posthouse.protocols.kafka.codec.generated.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from posthouse.protocols.kafka.codec.generated.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
)
from posthouse.protocols.kafka.codec.generated.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from posthouse.protocols.kafka.codec.generated.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.wire import Wire

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("election", [0, 1])
async def test_no_election_is_needed(election: int, wire: Wire) -> None:
    await wire.create_topic("t", 2)
    wanted = [TopicPartitions(topic="t", partitions=[1, 2]), TopicPartitions(topic="u", partitions=[0])]
    request = ElectLeadersRequest(election_type=election, topic_partitions=wanted)
    answer = await wire.ask(request, ElectLeadersResponse)
    assert answer.error_code == 0
    assert {
        (each.topic, result.partition_id): result.error_code
        for each in answer.replica_election_results
        for result in each.partition_result
    } == {("t", 1): ErrorCode.ELECTION_NOT_NEEDED, ("t", 2): UNKNOWN, ("u", 0): UNKNOWN}


async def test_of_all_partitions_none_needs_an_election(wire: Wire) -> None:
    await wire.create_topic("t", 2)
    answer = await wire.ask(ElectLeadersRequest(topic_partitions=None), ElectLeadersResponse)
    assert (answer.error_code, answer.replica_election_results) == (0, [])


async def test_an_election_of_no_known_type(wire: Wire) -> None:
    answer = await wire.ask(ElectLeadersRequest(election_type=2), ElectLeadersResponse)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


async def moved(wire: Wire, path: str) -> dict[tuple[str, int], int]:
    topics = [
        AlterReplicaLogDirTopic(name="t", partitions=[0, 1]),
        AlterReplicaLogDirTopic(name="u", partitions=[0]),
    ]
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])
    answer = await wire.ask(request, AlterReplicaLogDirsResponse)
    return {
        (each.topic_name, partition.partition_index): partition.error_code
        for each in answer.results
        for partition in each.partitions
    }


async def test_partitions_are_where_they_can_be(tmp_path: Path) -> None:
    async with AsyncBroker(data=tmp_path / "data") as broker, Wire(broker.kafka) as wire:
        await wire.create_topic("t", 1)
        [described] = (await wire.ask(DescribeLogDirsRequest(), DescribeLogDirsResponse)).results
        assert await moved(wire, described.log_dir) == {("t", 0): 0, ("t", 1): UNKNOWN, ("u", 0): UNKNOWN}
        elsewhere = await moved(wire, str(tmp_path / "elsewhere"))
        assert set(elsewhere.values()) == {ErrorCode.LOG_DIR_NOT_FOUND}


async def test_the_quorum_is_this_node(broker: AsyncBroker, wire: Wire) -> None:
    wanted = [
        RequestTopicData(
            topic_name=name, partitions=[RequestPartitionData(partition_index=index) for index in (0, 1)]
        )
        for name in ("__cluster_metadata", "t")
    ]
    answer = await wire.ask(DescribeQuorumRequest(topics=wanted), DescribeQuorumResponse)
    metadata, other = answer.topics
    known, *unknown = [*metadata.partitions, *other.partitions]
    assert (known.error_code, known.leader_id, known.leader_epoch) == (0, 1, 0)
    assert ([voter.replica_id for voter in known.current_voters], known.observers) == ([1], [])
    assert [each.error_code for each in unknown] == [UNKNOWN] * 3
    [node] = answer.nodes
    assert [(node.node_id, f"{each.host}:{each.port}") for each in node.listeners] == [(1, broker.kafka)]


async def test_nothing_is_reassigned(wire: Wire) -> None:
    await wire.create_topic("t", 5)
    replicas: list[list[int] | None] = [[1], None, [2], [1, 2], [], [1]]
    topic = reassignments.ReassignableTopic(
        name="t",
        partitions=[
            reassignments.ReassignablePartition(partition_index=index, replicas=each)
            for index, each in enumerate(replicas)
        ],
    )
    answer = await wire.ask(
        reassignments.AlterPartitionReassignmentsRequest(topics=[topic]),
        reassignments.AlterPartitionReassignmentsResponse,
    )
    [result] = answer.responses
    refused = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert [each.error_code for each in result.partitions] == [
        ErrorCode.NONE,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        refused,
        refused,
        refused,
        UNKNOWN,
    ]


async def test_no_reassignment_is_under_way(wire: Wire) -> None:
    await wire.create_topic("t", 1)
    for topics in (None, [ListPartitionReassignmentsTopics(name="t", partition_indexes=[0])]):
        request = ListPartitionReassignmentsRequest(topics=topics)
        answer = await wire.ask(request, ListPartitionReassignmentsResponse)
        assert (answer.error_code, answer.topics) == (0, [])
