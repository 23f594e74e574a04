"""Transactions with aiokafka, unmodified."""

from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError


@pytest.fixture(autouse=True)
async def made_topic(kafka: str, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 2, 1)])
    await admin.close()


async def read(kafka: str, topic: str, isolation: str = "read_committed") -> list[bytes]:
    partition = TopicPartition(topic, 0)
    consumer: Any = AIOKafkaConsumer(bootstrap_servers=kafka, isolation_level=isolation)
    consumer.assign([partition])
    async with consumer:
        await consumer.seek_to_beginning(partition)
        end = (await consumer.end_offsets([partition]))[partition]
        found: list[bytes] = []
        while await consumer.position(partition) < end:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                found += [record.value for record in records]
        return found


async def test_idempotent(kafka: str, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=kafka, enable_idempotence=True) as producer:
        sent = [await producer.send(topic, b"%d" % number, partition=0) for number in range(500)]
        assert [(await each).offset for each in sent] == list(range(500))


async def test_commit_and_abort(kafka: str, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=kafka, transactional_id=topic) as producer:
        for number in range(5):
            await producer.begin_transaction()
            for partition in range(2):
                await producer.send_and_wait(topic, b"%d" % number, partition=partition)
            if number == 2:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
    assert await read(kafka, topic) == [b"0", b"1", b"3", b"4"]
    assert await read(kafka, topic, "read_uncommitted") == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_second_producer_fences_the_first(kafka: str, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=kafka, transactional_id=topic) as first:
        await first.begin_transaction()
        await first.send_and_wait(topic, b"lost", partition=0)
        async with AIOKafkaProducer(bootstrap_servers=kafka, transactional_id=topic) as second:
            with pytest.raises(KafkaError):
                await first.commit_transaction()
            async with second.transaction():
                await second.send_and_wait(topic, b"kept", partition=0)
    assert await read(kafka, topic) == [b"kept"]


async def test_offsets(kafka: str, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    group = f"{topic}-group"
    async with AIOKafkaProducer(bootstrap_servers=kafka, transactional_id=topic) as producer:
        async with producer.transaction():
            await producer.send_and_wait(topic, b"x", partition=0)
            await producer.send_offsets_to_transaction({partition: 3}, group)
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({partition: 5}, group)
        await producer.abort_transaction()
    consumer: Any = AIOKafkaConsumer(bootstrap_servers=kafka, group_id=group, enable_auto_commit=False)
    async with consumer:
        assert await consumer.committed(partition) == 3
