"""aiokafka, unmodified."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import MessageSizeTooLargeError

BASE = 1_700_000_000_000
TEN_MEGABYTES = 10 * 1024 * 1024


async def produce(kafka: str, topic: str, values: list[bytes], **config: Any) -> list[Any]:
    async with AIOKafkaProducer(bootstrap_servers=kafka, **config) as producer:
        sent = [
            await producer.send(
                topic,
                value,
                key=b"key-%d" % index,
                partition=0,
                headers=[("number", b"%d" % index)],
                timestamp_ms=BASE + index,
            )
            for index, value in enumerate(values)
        ]
        return [await future for future in sent]


async def consume(kafka: str, topic: str, count: int, offset: int | None = None) -> list[Any]:
    partition = TopicPartition(topic, 0)
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka, max_partition_fetch_bytes=20_000_000)
    consumer.assign([partition])
    async with consumer:
        if offset is None:
            await consumer.seek_to_beginning(partition)
        else:
            consumer.seek(partition, offset)
        return [await consumer.getone() for _ in range(count)]


@pytest.fixture
async def admin(kafka: str) -> AsyncIterator[Any]:
    client = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await client.start()
    yield client
    await client.close()


@pytest.mark.parametrize("acks", [0, 1, "all"])
@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_round_trip(kafka: str, topic: str, codec: str | None, acks: Any) -> None:
    values = [b"value-%d " % index * 20 for index in range(50)]
    await produce(kafka, topic, values, compression_type=codec, acks=acks, linger_ms=5)
    messages = await consume(kafka, topic, len(values))
    assert [message.value for message in messages] == values
    assert [message.key for message in messages] == [b"key-%d" % index for index in range(50)]
    assert [message.offset for message in messages] == list(range(50))
    assert [message.timestamp for message in messages] == [BASE + index for index in range(50)]
    assert list(messages[7].headers) == [("number", b"7")]


async def test_results_carry_offsets(kafka: str, topic: str) -> None:
    results = await produce(kafka, topic, [b"x"] * 20)
    assert [result.offset for result in results] == list(range(20))


async def test_from_an_offset_and_from_a_time(kafka: str, topic: str) -> None:
    await produce(kafka, topic, [b"%d" % index for index in range(100)])
    assert [message.value for message in await consume(kafka, topic, 3, 97)] == [b"97", b"98", b"99"]
    partition = TopicPartition(topic, 0)
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka)
    consumer.assign([partition])
    async with consumer:
        found = (await consumer.offsets_for_times({partition: BASE + 40}))[partition]
        assert (found.offset, found.timestamp) == (40, BASE + 40)
        assert await consumer.beginning_offsets([partition]) == {partition: 0}
        assert await consumer.end_offsets([partition]) == {partition: 100}


async def test_ten_megabytes(kafka: str, topic: str, admin: Any) -> None:
    await admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"max.message.bytes": "20000000"})])
    value = bytes(range(256)) * (TEN_MEGABYTES // 256)
    await produce(kafka, topic, [value], max_request_size=20_000_000)
    [message] = await consume(kafka, topic, 1)
    assert message.value == value


async def test_too_large(kafka: str, topic: str, admin: Any) -> None:
    await admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"max.message.bytes": "1000"})])
    with pytest.raises(MessageSizeTooLargeError):
        await produce(kafka, topic, [b"x" * 2000])


async def test_topics_come_and_go(kafka: str, topic: str, admin: Any) -> None:
    await admin.create_topics([NewTopic(topic, 3, 3)])
    assert topic in await admin.list_topics()
    await admin.create_partitions({topic: NewPartitions(5)})
    [described] = await admin.describe_topics([topic])
    assert len(described["partitions"]) == 5
    await admin.delete_topics([topic])
    assert topic not in await admin.list_topics()


async def test_configs(kafka: str, topic: str, admin: Any) -> None:
    await admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"retention.ms": "1000"})])

    async def retention() -> str:
        [answer] = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        [resource] = answer.resources
        [value] = [config[1] for config in resource[4] if config[0] == "retention.ms"]
        assert isinstance(value, str)
        return value

    assert await retention() == "1000"
    await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "2000"})])
    assert await retention() == "2000"


async def test_delete_records(kafka: str, topic: str, admin: Any) -> None:
    await produce(kafka, topic, [b"%d" % index for index in range(10)])
    await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=6)})
    [message] = await consume(kafka, topic, 1)
    assert message.value == b"6"


async def test_a_thousand_topics(kafka: str, admin: Any) -> None:
    names = [f"aio-one-of-many-{index}" for index in range(1000)]
    await admin.create_topics([NewTopic(name, 1, 1) for name in names])
    assert set(names) <= set(await admin.list_topics())
    await admin.delete_topics(names)
