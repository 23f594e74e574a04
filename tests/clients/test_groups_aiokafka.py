"""Consumer groups with aiokafka."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.structs import OffsetAndMetadata

PARTITIONS = 4
Join = Callable[..., Awaitable[Any]]


@pytest.fixture
async def admin(kafka: str) -> AsyncIterator[Any]:
    client = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await client.start()
    yield client
    await client.close()


@pytest.fixture
async def filled(kafka: str, topic: str, admin: Any) -> str:
    await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
        for number in range(100):
            await producer.send_and_wait(topic, b"%d" % number, partition=number % PARTITIONS)
    return topic


@pytest.fixture
async def join(kafka: str, filled: str) -> AsyncIterator[Join]:
    opened: list[Any] = []

    async def start(**config: Any) -> Any:
        consumer = AIOKafkaConsumer(
            filled,
            bootstrap_servers=kafka,
            group_id=f"group-of-{filled}",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6000,
            heartbeat_interval_ms=200,
            **config,
        )
        opened.append(consumer)
        await consumer.start()
        return consumer

    yield start
    for consumer in opened:
        await consumer.stop()


async def until(consumers: list[Any], done: Callable[[], bool], seen: Counter[int]) -> None:
    async with asyncio.timeout(20):
        while not done():
            for consumer in consumers:
                found = await consumer.getmany(timeout_ms=50)
                for messages in found.values():
                    seen.update(int(message.value) for message in messages)


def share(consumer: Any) -> set[int]:
    return {each.partition for each in consumer.assignment()}


async def test_two_members_share(join: Join) -> None:
    first = await join()
    second = await join()
    seen = Counter[int]()
    await until([first, second], lambda: len(share(first)) == len(share(second)) == 2, seen)
    assert share(first) | share(second) == set(range(PARTITIONS))
    await second.stop()
    await until([first], lambda: len(share(first)) == PARTITIONS, seen)


async def test_commit_and_resume(filled: str, join: Join) -> None:
    first, seen = await join(), Counter[int]()
    await until([first], lambda: len(seen) == 100, seen)
    await first.commit({TopicPartition(filled, index): OffsetAndMetadata(20, "note") for index in range(4)})
    await first.stop()
    second, again = await join(), Counter[int]()
    await until([second], lambda: len(again) == 20, again)
    assert set(again) == set(range(80, 100))
    assert await second.committed(TopicPartition(filled, 1)) == 20


async def test_a_static_member_restarts(join: Join) -> None:
    first = await join(group_instance_id="one")
    second = await join(group_instance_id="two")
    seen = Counter[int]()
    await until([first, second], lambda: len(share(first)) == len(share(second)) == 2, seen)
    kept, untouched = share(first), share(second)
    await first.stop()
    again = await join(group_instance_id="one")
    await until([again, second], lambda: share(again) == kept, seen)
    assert share(second) == untouched


async def test_groups_as_tools_see_them(filled: str, join: Join, admin: Any) -> None:
    group = f"group-of-{filled}"
    consumer, seen = await join(), Counter[int]()
    await until([consumer], lambda: len(seen) == 100, seen)
    await consumer.commit()
    assert group in {name for name, _ in await admin.list_consumer_groups()}
    offsets = await admin.list_consumer_group_offsets(group)
    assert {partition.partition: each.offset for partition, each in offsets.items()} == dict.fromkeys(
        range(4), 25
    )
    [described] = await admin.describe_consumer_groups([group])
    assert described.groups[0][2] == "Stable"
