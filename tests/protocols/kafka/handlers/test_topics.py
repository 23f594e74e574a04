"""Creating, growing and deleting topics, and deleting records."""

import datetime
from collections.abc import Sequence

import pytest

from posthouse.protocols.kafka.codec.generated.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from posthouse.protocols.kafka.codec.generated.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from posthouse.protocols.kafka.codec.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from posthouse.protocols.kafka.codec.generated.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from posthouse.protocols.kafka.codec.primitives import ZERO_UUID
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.wire import Wire, batch, kio_module


async def create(
    wire: Wire, *topics: CreatableTopic, validate_only: bool = False
) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    return (await wire.ask(request, CreateTopicsResponse)).topics


def assigned(*partitions: int, brokers: Sequence[int] = (1,), **fields: int) -> CreatableTopic:
    return CreatableTopic(
        name="t",
        num_partitions=fields.get("num_partitions", -1),
        replication_factor=fields.get("replication_factor", -1),
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index in partitions
        ],
    )


def new(name: str = "t", partitions: int = 1, factor: int = 1, **configs: str | None) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ],
    )


async def test_created(broker: AsyncBroker, wire: Wire) -> None:
    [result] = await create(wire, new("t", 3, retention_ms="1000"))
    topic = broker.app.broker.topic("t")
    assert (result.error_code, result.topic_id, result.num_partitions) == (0, topic.id, 3)
    assert result.replication_factor == 1
    configs = {config.name: config for config in result.configs or ()}
    assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("1000", 1)
    assert (configs["segment.bytes"].value, configs["segment.bytes"].config_source) == ("268435456", 5)


@pytest.mark.parametrize("factor", [-1, 1, 3, 100])
async def test_any_replication_factor(factor: int, wire: Wire) -> None:
    [result] = await create(wire, new("t", -1, factor))
    assert (result.error_code, result.num_partitions) == (0, 4)


REFUSED = {
    "name": (new("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "no partitions": (new(partitions=0), ErrorCode.INVALID_PARTITIONS),
    "negative partitions": (new(partitions=-2), ErrorCode.INVALID_PARTITIONS),
    "no replicas": (new(factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
    "unknown setting": (new(colour="red"), ErrorCode.INVALID_CONFIG),
    "bad value": (new(retention_ms="soon"), ErrorCode.INVALID_CONFIG),
    "no value": (new(retention_ms=None), ErrorCode.INVALID_CONFIG),
    "unknown policy": (new(cleanup_policy="compact,forget"), ErrorCode.INVALID_CONFIG),
    "gap in assignments": (assigned(0, 2), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "assignment to nobody": (assigned(0, brokers=[]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "assignment to a stranger": (assigned(0, brokers=[2]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "assignment to one that exists and one that does not": (
        assigned(0, brokers=[1, 2]),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ),
    "assignment to the same broker twice": (
        assigned(0, brokers=[1, 1]),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ),
    "assignment of a partition twice": (assigned(0, 0), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "partitions and assignments": (assigned(0, num_partitions=1), ErrorCode.INVALID_REQUEST),
}


@pytest.mark.parametrize(("topic", "code"), REFUSED.values(), ids=REFUSED.keys())
async def test_refused_alone(topic: CreatableTopic, code: ErrorCode, broker: AsyncBroker, wire: Wire) -> None:
    refused, good = await create(wire, topic, new("good"))
    assert refused.error_code == code
    assert refused.error_message
    assert good.error_code == 0
    assert [each.name for each in broker.app.broker.topics] == ["good"]


async def test_assignments_say_how_many(wire: Wire) -> None:
    [result] = await create(wire, assigned(1, 0, 2))
    assert (result.error_code, result.num_partitions) == (0, 3)


async def test_exists(wire: Wire) -> None:
    await wire.create_topic("t")
    [result] = await create(wire, new("t"))
    assert result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


async def test_named_twice(broker: AsyncBroker, wire: Wire) -> None:
    results = await create(wire, new("t"), new("t"), new("other"))
    assert [(each.name, each.error_code) for each in results] == [
        ("t", ErrorCode.INVALID_REQUEST),
        ("other", ErrorCode.NONE),
    ]
    assert len(broker.app.broker.topics) == 1


async def test_validate_only(broker: AsyncBroker, wire: Wire) -> None:
    good, bad = await create(wire, new("t"), new("a/b"), validate_only=True)
    assert (good.error_code, good.topic_id) == (0, ZERO_UUID)
    assert bad.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert len(broker.app.broker.topics) == 0


async def delete(wire: Wire, *topics: DeleteTopicState) -> list[tuple[str | None, int]]:
    answer = await wire.ask(DeleteTopicsRequest(topics=list(topics)), DeleteTopicsResponse)
    return [(each.name, each.error_code) for each in answer.responses]


async def test_delete(broker: AsyncBroker, wire: Wire) -> None:
    await wire.create_topic("a")
    topic_id = await wire.create_topic("b")
    await wire.create_topic("kept")
    assert await delete(
        wire,
        DeleteTopicState(name="a"),
        DeleteTopicState(topic_id=topic_id),
        DeleteTopicState(name="unknown"),
        DeleteTopicState(topic_id=b"u" * 16),
        DeleteTopicState(name="kept", topic_id=b"k" * 16),
    ) == [
        ("a", ErrorCode.NONE),
        ("b", ErrorCode.NONE),
        ("unknown", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
        ("kept", ErrorCode.INVALID_REQUEST),
    ]
    assert [each.name for each in broker.app.broker.topics] == ["kept"]


async def test_delete_twice_in_one_request(broker: AsyncBroker, wire: Wire) -> None:
    await wire.create_topic("a")
    same = DeleteTopicState(name="a")
    assert await delete(wire, same, same) == [("a", ErrorCode.INVALID_REQUEST)]
    assert len(broker.app.broker.topics) == 1


async def test_delete_in_old_versions(broker: AsyncBroker, wire: Wire) -> None:
    await wire.create_topic("a")
    request = kio_module("delete_topics.v1.request").DeleteTopicsRequest(
        topic_names=("a",), timeout=datetime.timedelta(seconds=1)
    )
    answer = await wire.ask_kio(request, kio_module("delete_topics.v1.response").DeleteTopicsResponse)
    assert [(each.name, each.error_code) for each in answer.responses] == [("a", 0)]
    assert len(broker.app.broker.topics) == 0


async def test_a_topic_made_again_is_another(wire: Wire) -> None:
    first = await wire.create_topic("t")
    await wire.produce(first, batch(b"x"))
    await delete(wire, DeleteTopicState(name="t"))
    second = await wire.create_topic("t")
    assert second != first
    assert (await wire.fetch(second)).high_watermark == 0


async def grow(wire: Wire, topic: CreatePartitionsTopic, **fields: bool) -> int:
    answer = await wire.ask(CreatePartitionsRequest(topics=[topic], **fields), CreatePartitionsResponse)
    return answer.results[0].error_code


@pytest.mark.parametrize(
    ("topic", "code", "partitions"),
    [
        (CreatePartitionsTopic(name="t", count=5), ErrorCode.NONE, 5),
        (CreatePartitionsTopic(name="t", count=2), ErrorCode.INVALID_PARTITIONS, 2),
        (CreatePartitionsTopic(name="t", count=1), ErrorCode.INVALID_PARTITIONS, 2),
        (CreatePartitionsTopic(name="unknown", count=1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 2),
        (
            CreatePartitionsTopic(
                name="t", count=3, assignments=[CreatePartitionsAssignment(broker_ids=[1])]
            ),
            ErrorCode.NONE,
            3,
        ),
        (
            CreatePartitionsTopic(
                name="t", count=4, assignments=[CreatePartitionsAssignment(broker_ids=[1])]
            ),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            2,
        ),
        *(
            (
                CreatePartitionsTopic(
                    name="t", count=3, assignments=[CreatePartitionsAssignment(broker_ids=brokers)]
                ),
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                2,
            )
            for brokers in ([2], [1, 2], [1, 1], [])
        ),
        (
            CreatePartitionsTopic(
                name="t", count=2, assignments=[CreatePartitionsAssignment(broker_ids=[2])]
            ),
            ErrorCode.INVALID_PARTITIONS,
            2,
        ),
    ],
)
async def test_grow(
    topic: CreatePartitionsTopic, code: ErrorCode, partitions: int, broker: AsyncBroker, wire: Wire
) -> None:
    topic_id = await wire.create_topic("t", 2)
    await wire.produce(topic_id, batch(b"x"))
    validated = await grow(wire, topic, validate_only=True)
    assert broker.app.broker.topic("t").partitions == 2
    assert await grow(wire, topic) == validated == code
    assert broker.app.broker.topic("t").partitions == partitions
    assert (await wire.produce(topic_id, batch(b"y"), partition=partitions - 1)).error_code == 0
    assert (await wire.fetch(topic_id)).high_watermark == 1


async def forget(
    wire: Wire, offset: int, name: str = "t", partition: int = 0
) -> DeleteRecordsPartitionResult:
    wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name, partitions=[wanted])])
    return (await wire.ask(request, DeleteRecordsResponse)).topics[0].partitions[0]


@pytest.mark.parametrize(
    ("offset", "low", "code"),
    [
        (2, 2, ErrorCode.NONE),
        (0, 0, ErrorCode.NONE),
        (4, 4, ErrorCode.NONE),
        (-1, 4, ErrorCode.NONE),
        (5, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (-2, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
async def test_delete_records(offset: int, low: int, code: ErrorCode, wire: Wire) -> None:
    topic = await wire.create_topic()
    for _ in range(4):
        await wire.produce(topic, batch(b"x"))
    result = await forget(wire, offset)
    assert (result.error_code, result.low_watermark) == (code, low)
    found = await wire.fetch(topic, 4)
    assert (found.log_start_offset, found.high_watermark) == (max(low, 0), 4)


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ("compact", ErrorCode.POLICY_VIOLATION),
        ("compact,delete", ErrorCode.NONE),
        ("delete", ErrorCode.NONE),
        ("", ErrorCode.NONE),
    ],
)
async def test_delete_records_of_a_compacted_topic(policy: str, code: ErrorCode, wire: Wire) -> None:
    await wire.create_topic(cleanup_policy=policy)
    result = await forget(wire, -1)
    assert (result.error_code, result.low_watermark) == (code, 0 if code == ErrorCode.NONE else -1)


async def test_delete_records_of_nothing(wire: Wire) -> None:
    await wire.create_topic()
    assert (await forget(wire, -1, "unknown")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await forget(wire, -1, partition=3)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
