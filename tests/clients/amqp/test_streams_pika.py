"""Streams by pika's blocking connection."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pika
import pytest
from pika import BasicProperties

from tests.clients.amqp.blocking import Inbox, count, publish, settle, wait
from tests.clients.amqp.rabbit import Rabbit
from tests.clients.amqp.streams import HEADER, Reader, declare, numbers, refusal


def utc(ago: timedelta) -> datetime:
    return datetime.now(UTC).replace(tzinfo=None) - ago


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("first", 0),
        ("last", 9),
        ("next", 10),
        (None, 10),
        (0, 0),
        (4, 4),
        (9, 9),
        (10, 10),
        (12, 12),
        (-1, 0),
        ("1h", 0),
        (timedelta(hours=1), 0),
        (timedelta(hours=-1), 10),
    ],
    ids=str,
)
def test_where_a_reader_begins(connection: Any, channel: Any, stream: str, start: Any, first: int) -> None:
    publish(channel, stream, *numbers(0, 10))
    reader = Reader(connection, stream, utc(start) if isinstance(start, timedelta) else start)
    publish(channel, stream, *numbers(10, 15))
    reader.has(15 - first)
    assert reader.offsets == list(range(first, 15))
    assert reader.bodies == numbers(first, 15)


def test_every_reader_reads_everything(rabbit: Rabbit, channel: Any, stream: str) -> None:
    publish(channel, stream, *numbers(0, 20))
    connections = [pika.BlockingConnection(pika.URLParameters(rabbit.url)) for _ in range(3)]
    readers = [Reader(each, stream, "first", prefetch=3) for each in connections for _ in range(2)]
    publish(channel, stream, *numbers(20, 40))
    for reader in readers:
        reader.has(40)
        assert (reader.bodies, reader.offsets) == (numbers(0, 40), list(range(40)))
        assert not any(delivery.method.redelivered for delivery in reader)
        tags = [delivery.method.delivery_tag for delivery in reader]
        assert tags == list(range(1, 41))
    for each in connections:
        each.close()


def test_acknowledgements_are_credit(connection: Any, channel: Any, stream: str) -> None:
    publish(channel, stream, *numbers(0, 20))
    reader = Reader(connection, stream, "first", prefetch=5, ack=False).has(5)
    settle(channel, stream)
    assert len(reader) == 5
    reader.channel.basic_ack(2)
    reader.has(6)
    reader.channel.basic_ack(5, multiple=True)
    reader.has(10)
    settle(channel, stream)
    assert (reader.bodies, reader.offsets) == (numbers(0, 10), list(range(10)))
    reader.channel.close()  # what was not acknowledged is no matter
    assert Reader(connection, stream, 8).has(12).offsets == list(range(8, 20))


def test_transactions_give_credit_when_they_are_committed(connection: Any, channel: Any, stream: str) -> None:
    publish(channel, stream, *numbers(0, 9))
    transactional = connection.channel()
    transactional.tx_select()
    transactional.basic_qos(prefetch_count=3)
    inbox = Inbox(transactional, stream, arguments={HEADER: "first"})
    wait(lambda: len(inbox) == 3, connection)
    transactional.basic_publish("", stream, b"in it")
    transactional.basic_ack(3, multiple=True)
    settle(channel, stream)
    assert len(inbox) == 3
    transactional.tx_commit()
    wait(lambda: len(inbox) == 6, connection)
    assert Reader(connection, stream, 9).has(1).bodies == [b"in it"]


@pytest.mark.usefixtures("posthouse_only")
def test_all_ways_of_settling_are_credit(connection: Any, channel: Any, stream: str) -> None:
    """As in RabbitMQ 4; 3.10 closes the connection for it."""
    publish(channel, stream, *numbers(0, 10))
    reader = Reader(connection, stream, "first", prefetch=2, ack=False).has(2)
    reader.channel.basic_nack(1, requeue=True)
    reader.channel.basic_reject(2, requeue=False)
    reader.has(4)
    reader.channel.basic_nack(4, multiple=True, requeue=False)
    reader.has(6)
    reader.channel.basic_recover(requeue=True)
    reader.has(8)
    assert reader.offsets == list(range(8))


def test_exchanges_feed_it(connection: Any, channel: Any, stream: str) -> None:
    channel.exchange_declare(f"{stream}-x", "topic", auto_delete=True)
    channel.queue_bind(stream, f"{stream}-x", "de.*")
    channel.basic_publish(f"{stream}-x", "de.berlin", b"one", mandatory=True)
    channel.basic_publish(f"{stream}-x", "fr.paris", b"not for it")
    publish(channel, stream, b"two")
    channel.basic_publish(f"{stream}-x", "de.bonn", b"three", mandatory=True)
    reader = Reader(connection, stream, "first").has(3)
    assert reader.bodies == [b"one", b"two", b"three"]
    assert [(each.method.exchange, each.method.routing_key) for each in reader] == [
        (f"{stream}-x", "de.berlin"),
        ("", stream),
        (f"{stream}-x", "de.bonn"),
    ]
    channel.queue_unbind(stream, f"{stream}-x", "de.*")


@pytest.mark.usefixtures("posthouse_only")
def test_tables_and_lists_among_the_headers(connection: Any, channel: Any, stream: str) -> None:
    """RabbitMQ 3.10 loses them, and with them the dead letters of the next test."""
    publish(channel, stream, b"deep", headers={"k": [1, {"a": "b"}]})
    [deep] = Reader(connection, stream, "first").has(1)
    assert deep.properties.headers == {"k": [1, {"a": "b"}], HEADER: 0}


@pytest.mark.usefixtures("posthouse_only")
def test_dead_letters_of_other_queues_feed_it(connection: Any, channel: Any, stream: str) -> None:
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": stream, "x-message-ttl": 1}
    channel.queue_declare(f"{stream}-q", exclusive=True, arguments=arguments)
    publish(channel, f"{stream}-q", b"dies")
    [dead] = Reader(connection, stream, "first").has(1)
    assert dead.body == b"dies"
    assert dead.properties.headers["x-death"][0]["reason"] == "expired"


def test_properties_and_the_offset_among_the_headers(connection: Any, channel: Any, stream: str) -> None:
    given = {
        "content_type": "text/plain",
        "correlation_id": "c",
        "reply_to": "r",
        "message_id": "m",
        "timestamp": 1_700_000_000,
        "type": "t",
        "app_id": "a",
        "priority": 5,
    }
    publish(channel, stream, b"bare")
    publish(channel, stream, b"full", headers={"k": "v", "n": 5, HEADER: "mine"}, **given)
    publish(channel, stream, b"expires", expiration="1")
    bare, full, expires = Reader(connection, stream, "first").has(3)
    assert bare.properties == BasicProperties(headers={HEADER: 0})
    assert full.properties == BasicProperties(headers={"k": "v", "n": 5, HEADER: 1}, **given)
    assert list(full.properties.headers) == ["k", "n", HEADER]
    assert expires.body == b"expires"


def test_deleting_it_cancels_its_readers(connection: Any, channel: Any, name: str) -> None:
    declare(channel, name)
    publish(channel, name, b"x")
    reader = Reader(connection, name, "next")
    cancelled: list[str] = []
    reader.channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    channel.queue_delete(name)
    wait(lambda: cancelled, connection)
    assert cancelled == [reader.tag]
    declare(channel, name)
    assert Reader(connection, name, "first").bodies == []
    channel.queue_delete(name)


def test_cancelling_a_reader(connection: Any, channel: Any, stream: str) -> None:
    reader = Reader(connection, stream, "first")
    publish(channel, stream, b"a")
    reader.has(1).channel.basic_cancel(reader.tag)
    publish(channel, stream, b"b")
    settle(channel, stream)
    assert reader.bodies == [b"a"]


def test_a_backlog_with_a_small_prefetch(connection: Any, channel: Any, stream: str) -> None:
    plain = connection.channel()  # without confirms
    for number in range(3000):
        plain.basic_publish("", stream, b"%1000d" % number)
    publish(channel, stream, b"end")
    reader = Reader(connection, stream, "first", prefetch=50)
    reader.has(3001)
    assert reader.offsets == list(range(3001))
    assert [int(body) for body in reader.bodies[:-1]] == list(range(3000))


@pytest.mark.usefixtures("posthouse_only")
def test_counts(connection: Any, channel: Any, name: str) -> None:
    """RabbitMQ counts messages every few seconds, and never readers; it ignores the conditions."""
    declare(channel, name)
    publish(channel, name, b"a", b"b")
    Reader(connection, name).has(0)
    declared = declare(channel, name)
    assert (declared.message_count, declared.consumer_count) == (2, 1)
    assert count(channel, name) == 2
    assert refusal(lambda: connection.channel().queue_delete(name, if_unused=True))[0] == 406
    assert refusal(lambda: connection.channel().queue_delete(name, if_empty=True))[0] == 406
    assert channel.queue_delete(name).method.message_count == 2
