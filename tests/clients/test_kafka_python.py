"""kafka-python 3, unmodified."""

import warnings
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
    from kafka.codec import has_snappy
    from kafka.errors import MessageSizeTooLargeError, TopicAlreadyExistsError

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

BASE = 1_700_000_000_000
TEN_MEGABYTES = 10 * 1024 * 1024


def produce(kafka: str, topic: str, values: list[bytes], **config: Any) -> list[Any]:
    if config.get("acks", "all") != "all":
        config["enable_idempotence"] = False
    with closing(KafkaProducer(bootstrap_servers=kafka, **config)) as producer:
        futures = [
            producer.send(
                topic,
                value,
                key=b"key-%d" % index,
                partition=0,
                headers=[("number", b"%d" % index)],
                timestamp_ms=BASE + index,
            )
            for index, value in enumerate(values)
        ]
        producer.flush(30)
        return [future.get(30) for future in futures]


def make_consumer(kafka: str, **config: Any) -> Any:
    return KafkaConsumer(bootstrap_servers=kafka, consumer_timeout_ms=30_000, group_id=None, **config)


def consume(kafka: str, topic: str, count: int, offset: int | None = None, **config: Any) -> list[Any]:
    consumer = make_consumer(kafka, **config)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    if offset is None:
        consumer.seek_to_beginning(partition)
    else:
        consumer.seek(partition, offset)
    messages = [next(consumer) for _ in range(count)]
    consumer.close()
    return messages


@pytest.fixture
def admin(kafka: str) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=kafka)
    yield client
    client.close()


@pytest.mark.parametrize("acks", [0, 1, "all"])
@pytest.mark.parametrize(
    "codec",
    [
        None,
        "gzip",
        pytest.param(
            "snappy",
            marks=pytest.mark.skipif(not has_snappy(), reason="kafka-python needs python-snappy for it"),
        ),
        "lz4",
        "zstd",
    ],
)
def test_round_trip(kafka: str, topic: str, codec: str | None, acks: Any) -> None:
    values = [b"value-%d " % index * 20 for index in range(50)]
    produce(kafka, topic, values, compression_type=codec, acks=acks, linger_ms=5)
    messages = consume(kafka, topic, len(values))
    assert [message.value for message in messages] == values
    assert [message.key for message in messages] == [b"key-%d" % index for index in range(50)]
    assert [message.offset for message in messages] == list(range(50))
    assert [message.timestamp for message in messages] == [BASE + index for index in range(50)]
    assert list(messages[7].headers) == [("number", b"7")]


def test_results_carry_offsets(kafka: str, topic: str) -> None:
    assert [result.offset for result in produce(kafka, topic, [b"x"] * 20)] == list(range(20))


def test_from_an_offset_and_from_a_time(kafka: str, topic: str) -> None:
    produce(kafka, topic, [b"%d" % index for index in range(100)])
    assert [message.value for message in consume(kafka, topic, 3, 97)] == [b"97", b"98", b"99"]
    consumer = make_consumer(kafka)
    partition = TopicPartition(topic, 0)
    found = consumer.offsets_for_times({partition: BASE + 40})[partition]
    assert (found.offset, found.timestamp) == (40, BASE + 40)
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 100}
    consumer.close()


def test_ten_megabytes(kafka: str, topic: str, admin: Any) -> None:
    admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"max.message.bytes": "20000000"})])
    value = bytes(range(256)) * (TEN_MEGABYTES // 256)
    produce(kafka, topic, [value], max_request_size=20_000_000)
    [message] = consume(kafka, topic, 1)
    assert message.value == value


def test_too_large(kafka: str, topic: str, admin: Any) -> None:
    admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"max.message.bytes": "1000"})])
    with pytest.raises(MessageSizeTooLargeError):
        produce(kafka, topic, [b"x" * 2000])


def test_topics_come_and_go(kafka: str, topic: str, admin: Any) -> None:
    admin.create_topics([NewTopic(topic, 3, 3)])
    assert topic in admin.list_topics()
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(topic, 3, 3)])
    admin.create_partitions({topic: NewPartitions(5)})
    [described] = admin.describe_topics([topic])
    assert len(described["partitions"]) == 5
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()


def test_configs(kafka: str, topic: str, admin: Any) -> None:
    admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"retention.ms": "1000"})])

    def retention() -> str:
        described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        value: str = described["topic"][topic]["retention.ms"]["value"]
        return value

    assert retention() == "1000"
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "2000"})])
    assert retention() == "2000"


def test_delete_records(kafka: str, topic: str, admin: Any) -> None:
    produce(kafka, topic, [b"%d" % index for index in range(10)])
    admin.delete_records({TopicPartition(topic, 0): 6})
    [message] = consume(kafka, topic, 1)
    assert message.value == b"6"


def test_a_thousand_topics(kafka: str, admin: Any) -> None:
    names = [f"python-one-of-many-{index}" for index in range(1000)]
    admin.create_topics([NewTopic(name, 1, 1) for name in names])
    assert set(names) <= set(admin.list_topics())
    admin.delete_topics(names)
