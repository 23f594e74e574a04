"""Streams and Kafka clients: the same records both ways."""

from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from tests.clients.amqp.blocking import publish
from tests.clients.amqp.rabbit import Rabbit
from tests.clients.amqp.streams import HEADER, Reader, declare, numbers

pytestmark = pytest.mark.usefixtures("posthouse_only")

QUIET = {"log_level": 0}


@pytest.fixture
def kafka(rabbit: Rabbit) -> str:
    assert rabbit.kafka is not None
    return rabbit.kafka


def consumed(kafka: str, topic: str, count: int) -> list[tuple[int, bytes | None, dict[str, Any]]]:
    consumer = Consumer(
        {"bootstrap.servers": kafka, "group.id": f"of-{topic}", "auto.offset.reset": "earliest", **QUIET}
    )
    consumer.subscribe([topic])
    found: list[tuple[int, bytes | None, dict[str, Any]]] = []
    while len(found) < count:
        message = consumer.poll(20)
        assert message is not None and message.error() is None
        offset, headers = message.offset(), message.headers()
        assert offset is not None
        found.append((offset, message.value(), dict(headers or ())))
    consumer.close()
    return found


def test_the_topic_is_the_stream(kafka: str, connection: Any, channel: Any, name: str) -> None:
    declare(channel, name)
    publish(channel, name, *numbers(0, 5), headers={"tenant": "blue"}, content_type="text/plain")
    producer = Producer({"bootstrap.servers": kafka, **QUIET})
    for value in numbers(5, 10):
        producer.produce(name, value, key=b"k", headers={"tenant": "red"})
    assert producer.flush(20) == 0
    publish(channel, name, *numbers(10, 12))

    reader = Reader(connection, name, "first").has(12)
    assert (reader.bodies, reader.offsets) == (numbers(0, 12), list(range(12)))
    assert reader[0].properties.content_type == "text/plain"
    assert (reader[7].method.routing_key, reader[7].properties.headers) == (
        "k",
        {"tenant": "red", HEADER: 7},
    )
    records = consumed(kafka, name, 12)
    assert [offset for offset, _, _ in records] == reader.offsets
    assert [value for _, value, _ in records] == reader.bodies
    assert records[0][2]["tenant"] == b"blue"
    assert HEADER not in records[0][2], "an offset is a place, and no part of the record"


def test_transactions_of_kafka_producers(kafka: str, connection: Any, channel: Any, name: str) -> None:
    declare(channel, name)
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": name, **QUIET})
    producer.init_transactions(20)
    for commits, value in ((True, b"kept"), (False, b"aborted"), (True, b"kept, too")):
        producer.begin_transaction()
        producer.produce(name, value)
        if commits:
            producer.commit_transaction(20)
        else:
            producer.flush(20)
            producer.abort_transaction(20)
    reader = Reader(connection, name, "first").has(2)
    publish(channel, name, b"last")
    reader.has(3)
    assert (reader.bodies, reader.offsets) == ([b"kept", b"kept, too", b"last"], [0, 1, 2])


def test_an_exchange_and_its_streams(kafka: str, connection: Any, channel: Any, name: str) -> None:
    """One record in the topic of the exchange, whoever writes it, and its place in each stream."""
    channel.exchange_declare(name, "topic", durable=True)
    for part, key in (("all", "#"), ("german", "de.*")):
        declare(channel, f"{name}-{part}")
        channel.queue_bind(f"{name}-{part}", name, key)
    channel.basic_publish(name, "fr.paris", b"1", mandatory=True)
    channel.basic_publish(name, "de.berlin", b"2", mandatory=True)
    producer = Producer({"bootstrap.servers": kafka, **QUIET})
    for place, value in (("de.bonn", b"3"), ("it.rome", b"4"), ("de.trier", b"5")):
        producer.produce(name, value, key=place)
        assert producer.flush(20) == 0
    everything = Reader(connection, f"{name}-all", "first").has(5)
    german = Reader(connection, f"{name}-german", "first").has(3)
    assert (everything.bodies, everything.offsets) == (numbers(1, 6), list(range(5)))
    assert (german.bodies, german.offsets) == ([b"2", b"3", b"5"], [0, 1, 2])
    assert [value for _, value, _ in consumed(kafka, name, 5)] == numbers(1, 6)
