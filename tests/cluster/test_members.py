"""Three brokers, each of which serves every log: Kafka and AMQP clients at each, and stops in turn."""

import asyncio
from collections.abc import Sequence

import pika
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from posthouse.node import Node
from tests.cluster.nodes import coordinates, node, nodes, until

pytestmark = pytest.mark.timeout(120)

_PARTITIONS = 24
_SECONDS = 30


def kafka(*of: Node) -> str:
    return ",".join(str(each.listeners["kafka"]) for each in of)


async def know_each_other(made: Sequence[Node]) -> None:
    await until(lambda: all(len(each.view.brokers) == len(made) for each in made))


async def create(at: Node, topic: str, partitions: int = _PARTITIONS) -> None:
    """Through whichever broker."""
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka(at))
    await admin.start()
    await admin.create_topics([NewTopic(topic, partitions, 1)])
    await admin.close()


async def test_every_broker_names_the_same_leaders_and_all_lead(url: str) -> None:
    async with nodes(url, "a", "b", "c") as made:
        await know_each_other(made)
        await create(made[1], "spread")

        def leaders(at: Node) -> tuple[dict[int, int], int]:
            found = AdminClient({"bootstrap.servers": kafka(at)}).list_topics("spread", timeout=_SECONDS)
            partitions = found.topics["spread"].partitions.values()
            return {each.id: each.leader for each in partitions}, found.controller_id

        named = [await asyncio.to_thread(leaders, each) for each in made]
        assert named[0] == named[1] == named[2]
        assert (set(named[0][0].values()), named[0][1]) == ({1, 2, 3}, 1)


async def test_records_that_are_produced_at_each_are_consumed_at_each(url: str) -> None:
    async with nodes(url, "a", "b", "c") as made:
        await know_each_other(made)
        await create(made[0], "t")
        sent = []
        for each in made:
            # On a busy machine it may try again: only with a sequence that does not write twice.
            producer = AIOKafkaProducer(bootstrap_servers=kafka(each), enable_idempotence=True)
            await producer.start()
            for number in range(50):
                value = b"%d-%d" % (each.parts.registry.node_id, number)
                await producer.send_and_wait("t", value)
                sent.append(value)
            await producer.stop()
        for each in made:
            consumer = AIOKafkaConsumer("t", bootstrap_servers=kafka(each), auto_offset_reset="earliest")
            await consumer.start()
            found = [await asyncio.wait_for(consumer.getone(), _SECONDS) for _ in sent]
            await consumer.stop()
            assert sorted(record.value or b"" for record in found) == sorted(sent)


async def test_a_consumer_hears_at_once_what_is_produced_elsewhere(url: str) -> None:
    async with nodes(url, "a", "b", "c") as made:
        await know_each_other(made)
        await create(made[0], "t", 1)
        consumer = AIOKafkaConsumer(bootstrap_servers=kafka(made[2]))
        await consumer.start()
        consumer.assign([TopicPartition("t", 0)])
        await consumer.seek_to_beginning()
        for each in made:
            producer = AIOKafkaProducer(bootstrap_servers=kafka(each))
            await producer.start()
            await producer.send_and_wait("t", b"x")
            await producer.stop()
            assert (await asyncio.wait_for(consumer.getone(), _SECONDS)).value == b"x"
        await consumer.stop()


async def test_a_group_while_its_members_fetch_from_all_brokers(url: str) -> None:
    async with nodes(url, "a", "b", "c") as made:
        await know_each_other(made)
        await create(made[2], "t")
        consumers = [
            AIOKafkaConsumer("t", bootstrap_servers=kafka(each), group_id="g", auto_offset_reset="earliest")
            for each in made
        ]
        await asyncio.gather(*(each.start() for each in consumers))
        producer = AIOKafkaProducer(bootstrap_servers=kafka(made[1]))
        await producer.start()
        for partition in range(_PARTITIONS):
            await producer.send_and_wait("t", b"%d" % partition, partition=partition)
        await producer.stop()
        found: set[int] = set()
        async with asyncio.timeout(_SECONDS):
            while len(found) < _PARTITIONS:
                for each in consumers:
                    for records in (await each.getmany(timeout_ms=100)).values():
                        found |= {int(record.value or b"") for record in records}
        await asyncio.gather(*(each.stop() for each in consumers))
        assert found == set(range(_PARTITIONS))


async def test_a_transactional_producer_at_a_member(url: str) -> None:
    async with nodes(url, "a", "b", "c") as made:
        await know_each_other(made)
        await create(made[1], "t")

        def talk() -> list[bytes]:
            producer = Producer({"bootstrap.servers": kafka(made[1]), "transactional.id": "mine"})
            producer.init_transactions(_SECONDS)
            for number, commits in enumerate([True, False, True]):
                producer.begin_transaction()
                for part in range(10):
                    producer.produce("t", f"{number}-{part}")
                producer.flush(_SECONDS)
                (producer.commit_transaction if commits else producer.abort_transaction)(_SECONDS)
            consumer = Consumer(
                {
                    "bootstrap.servers": kafka(made[2]),
                    "group.id": "g",
                    "auto.offset.reset": "earliest",
                    "isolation.level": "read_committed",
                }
            )
            consumer.subscribe(["t"])
            found = [each.value() or b"" for each in consumer.consume(20, _SECONDS)]
            assert consumer.poll(1.0) is None
            consumer.close()
            return found

        found = await asyncio.to_thread(talk)
        assert sorted(found) == sorted(b"%d-%d" % (number, part) for number in (0, 2) for part in range(10))


async def test_a_topic_that_feeds_a_queue_is_written_by_the_holder_of_its_namespace(url: str) -> None:
    async with nodes(url, "a", "b", "c") as made:
        await know_each_other(made)
        await create(made[0], "orders", 4)
        producer = AIOKafkaProducer(bootstrap_servers=kafka(made[1]), metadata_max_age_ms=1000)
        await producer.start()
        await producer.send_and_wait("orders", b"before", partition=3)
        address = made[2].listeners["amqp"]

        def bind() -> pika.BlockingConnection:
            connection = pika.BlockingConnection(pika.ConnectionParameters(address.host, address.port))
            channel = connection.channel()
            channel.exchange_declare("orders", "fanout", durable=True)
            channel.queue_declare("q", durable=True)
            channel.queue_bind("q", "orders")
            return connection

        connection = await asyncio.to_thread(bind)
        for partition in range(4):
            await asyncio.wait_for(producer.send_and_wait("orders", b"after", partition=partition), _SECONDS)
        await producer.stop()

        def get() -> list[bytes]:
            channel = connection.channel()
            found = []
            for _, _, body in channel.consume("q", inactivity_timeout=_SECONDS):
                assert body is not None
                found.append(body)
                if len(found) == 4:
                    break
            connection.close()
            return found

        assert await asyncio.to_thread(get) == [b"after"] * 4


async def test_each_broker_stops_and_starts_again_in_turn(url: str) -> None:
    async with nodes(url, "a", "b", "c") as made:
        await know_each_other(made)
        await create(made[0], "t")
        producer = AIOKafkaProducer(
            bootstrap_servers=kafka(*made), metadata_max_age_ms=500, enable_idempotence=True
        )
        await producer.start()
        sent = 0
        again: list[Node] = []
        for each in made:
            await each.stop()
            for _ in range(10):
                await asyncio.wait_for(producer.send_and_wait("t", b"%d" % sent), _SECONDS)
                sent += 1
            follower = node(url, f"again-{len(again)}")
            await follower.start()
            again.append(follower)
        await producer.stop()
        await until(lambda: sum(coordinates(each)() for each in again) == 1)
        consumer = AIOKafkaConsumer("t", bootstrap_servers=kafka(*again), auto_offset_reset="earliest")
        await consumer.start()
        found = [await asyncio.wait_for(consumer.getone(), _SECONDS) for _ in range(sent)]
        await consumer.stop()
        for each in again:
            await each.stop()
        assert sorted(int(record.value or b"") for record in found) == list(range(sent))
