"""librdkafka, through confluent-kafka, unmodified."""

from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_CREATE_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
BASE = 1_700_000_000_000
TEN_MEGABYTES = 10 * 1024 * 1024
QUIET = {"log_level": 0}


def produce(kafka: str, topic: str, values: list[bytes], **config: Any) -> list[Message]:
    """To partition 0; returns the delivery reports."""
    producer = Producer({"bootstrap.servers": kafka, **QUIET, **config})
    delivered: list[Message] = []

    def report(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        delivered.append(message)

    for index, value in enumerate(values):
        producer.produce(
            topic,
            value,
            key=b"key-%d" % index,
            partition=0,
            headers=[("number", b"%d" % index), ("none", None)],
            timestamp=BASE + index,
            on_delivery=report,
        )
        producer.poll(0)
    assert producer.flush(30) == 0
    assert len(delivered) == len(values)
    return delivered


def consume(
    kafka: str, topic: str, count: int, offset: int = OFFSET_BEGINNING, **config: Any
) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "unused", **QUIET, **config})
    consumer.assign([TopicPartition(topic, 0, offset)])
    messages: list[Message] = []
    while len(messages) < count:
        found = consumer.consume(count - len(messages), 30)
        assert found, f"{len(messages)} of {count} messages came"
        for message in found:
            assert message.error() is None, message.error()
            messages.append(message)
    consumer.close()
    return messages


@pytest.fixture
def admin(kafka: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka, **QUIET})


def result(futures: dict[Any, Any]) -> Any:
    [future] = futures.values()
    return future.result(30)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("codec", CODECS)
def test_round_trip(kafka: str, topic: str, codec: str, acks: str) -> None:
    values = [b"value-%d " % index * 20 for index in range(200)]
    produce(kafka, topic, values, **{"compression.type": codec, "acks": acks, "linger.ms": 5})
    messages = consume(kafka, topic, len(values))
    assert [message.value() for message in messages] == values
    assert [message.key() for message in messages] == [b"key-%d" % index for index in range(200)]
    assert [message.offset() for message in messages] == list(range(200))
    assert [message.timestamp() for message in messages] == [
        (TIMESTAMP_CREATE_TIME, BASE + index) for index in range(200)
    ]
    assert messages[7].headers() == [("number", b"7"), ("none", None)]


def test_delivery_reports_carry_offsets(kafka: str, topic: str) -> None:
    delivered = produce(kafka, topic, [b"x"] * 50)
    assert [message.offset() for message in delivered] == list(range(50))


def test_tombstones_and_empty_values(kafka: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": kafka, **QUIET})
    producer.produce(topic, None, key=b"gone", partition=0)
    producer.produce(topic, b"", key=None, partition=0)
    assert producer.flush(30) == 0
    tombstone, empty = consume(kafka, topic, 2)
    assert (tombstone.key(), tombstone.value()) == (b"gone", None)
    assert (empty.key(), empty.value()) == (None, b"")


def test_from_an_offset(kafka: str, topic: str) -> None:
    produce(kafka, topic, [b"%d" % index for index in range(100)])
    assert [message.value() for message in consume(kafka, topic, 3, 97)] == [b"97", b"98", b"99"]


def test_from_a_time(kafka: str, topic: str) -> None:
    produce(kafka, topic, [b"%d" % index for index in range(100)])
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "unused", **QUIET})
    [found] = consumer.offsets_for_times([TopicPartition(topic, 0, BASE + 40)], 30)
    assert found.offset == 40
    [late] = consumer.offsets_for_times([TopicPartition(topic, 0, BASE + 1000)], 30)
    assert late.offset == -1
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), 30) == (0, 100)
    consumer.close()
    assert consume(kafka, topic, 1, found.offset)[0].value() == b"40"


def test_an_offset_out_of_range_is_reset(kafka: str, topic: str) -> None:
    produce(kafka, topic, [b"a", b"b"])
    messages = consume(kafka, topic, 2, 1000, **{"auto.offset.reset": "earliest"})
    assert [message.value() for message in messages] == [b"a", b"b"]


def test_log_append_time(kafka: str, topic: str, admin: AdminClient) -> None:
    result(admin.create_topics([NewTopic(topic, 1, config={"message.timestamp.type": "LogAppendTime"})]))
    produce(kafka, topic, [b"a"])
    [message] = consume(kafka, topic, 1)
    kind, timestamp = message.timestamp()
    assert kind == 2
    assert timestamp > BASE + 1000


def test_ten_megabytes(kafka: str, topic: str, admin: AdminClient) -> None:
    result(admin.create_topics([NewTopic(topic, 1, config={"max.message.bytes": "20000000"})]))
    value = bytes(range(256)) * (TEN_MEGABYTES // 256)
    produce(kafka, topic, [value], **{"message.max.bytes": 20_000_000})
    [message] = consume(kafka, topic, 1)
    assert message.value() == value


def test_too_large(kafka: str, topic: str, admin: AdminClient) -> None:
    result(admin.create_topics([NewTopic(topic, 1, config={"max.message.bytes": "1000"})]))
    producer = Producer({"bootstrap.servers": kafka, **QUIET})
    errors: list[KafkaError | None] = []
    producer.produce(topic, b"x" * 2000, on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    [error] = errors
    assert error is not None
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_topics_come_and_go(kafka: str, topic: str, admin: AdminClient) -> None:
    result(admin.create_topics([NewTopic(topic, 3, replication_factor=3)]))
    assert len(admin.list_topics(timeout=30).topics[topic].partitions) == 3
    with pytest.raises(KafkaException) as exists:
        result(admin.create_topics([NewTopic(topic, 3)]))
    assert exists.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    result(admin.create_partitions([NewPartitions(topic, 5)]))
    assert len(admin.list_topics(timeout=30).topics[topic].partitions) == 5
    result(admin.delete_topics([topic]))
    assert topic not in admin.list_topics(timeout=30).topics


@pytest.mark.filterwarnings("ignore:alter_configs has been deprecated")
def test_configs(kafka: str, topic: str, admin: AdminClient) -> None:
    provisioned = {
        "retention.ms": "1000",
        "min.insync.replicas": "2",
        "cleanup.policy": "",
        "flush.ms": "500",
    }
    result(admin.create_topics([NewTopic(topic, 1, replication_factor=3, config=provisioned)]))
    resource = ConfigResource(ResourceType.TOPIC, topic)
    configs = result(admin.describe_configs([resource]))
    assert {name: configs[name].value for name in provisioned} == provisioned
    assert not any(configs[name].is_read_only or configs[name].is_default for name in provisioned)
    change = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("retention.ms", "2000", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    result(admin.incremental_alter_configs([change]))
    assert result(admin.describe_configs([resource]))["retention.ms"].value == "2000"
    result(admin.alter_configs([ConfigResource(ResourceType.TOPIC, topic, set_config={"segment.ms": "7"})]))
    configs = result(admin.describe_configs([resource]))
    assert (configs["retention.ms"].value, configs["segment.ms"].value) == ("604800000", "7")
    broker = result(admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]))
    assert broker["num.partitions"].value == "4"


def test_delete_records_and_list_offsets(kafka: str, topic: str, admin: AdminClient) -> None:
    produce(kafka, topic, [b"%d" % index for index in range(10)])

    spec: Any = OffsetSpec

    def offset(wanted: Any) -> int:
        found: int = result(admin.list_offsets({TopicPartition(topic, 0): wanted})).offset
        return found

    assert (offset(spec.earliest()), offset(spec.latest())) == (0, 10)
    assert offset(spec.max_timestamp()) == 9
    assert offset(spec.for_timestamp(BASE + 4)) == 4
    assert result(admin.delete_records([TopicPartition(topic, 0, 6)])).low_watermark == 6
    assert offset(spec.earliest()) == 6
    assert consume(kafka, topic, 1)[0].value() == b"6"


def test_describe_cluster_and_topics(kafka: str, topic: str, admin: AdminClient) -> None:
    result(admin.create_topics([NewTopic(topic, 2)]))
    cluster = admin.describe_cluster(request_timeout=30).result(30)
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [kafka]
    described = result(admin.describe_topics(TopicCollection([topic])))
    assert [len(described.partitions), described.name] == [2, topic]


def test_a_thousand_topics(kafka: str, admin: AdminClient) -> None:
    names = [f"one-of-many-{index}" for index in range(1000)]
    for future in admin.create_topics([NewTopic(name, 1) for name in names]).values():
        future.result(60)
    assert set(names) <= set(admin.list_topics(timeout=30).topics)
    for future in admin.delete_topics(names).values():
        future.result(60)
    assert not set(names) & set(admin.list_topics(timeout=30).topics)
