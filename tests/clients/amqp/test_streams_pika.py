"""Streams by pika's blocking connection."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pika
import pytest
from pika import BasicProperties
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker

from tests.clients.amqp.blocking import Inbox, count, publish, settle, wait
from tests.clients.amqp.rabbit import Rabbit
from tests.clients.amqp.streams import HEADER, STREAM, Reader, declare, numbers


@pytest.fixture
def stream(channel: Any, name: str) -> Iterator[str]:
    declare(channel, name)
    yield name
    if channel.is_open:
        channel.queue_delete(name)


def refusal(attempt: Callable[[], object]) -> tuple[int, str]:
    with pytest.raises((ChannelClosedByBroker, ConnectionClosedByBroker)) as caught:
        attempt()
    return caught.value.reply_code, caught.value.reply_text.partition(" - ")[2]


def utc(ago: timedelta) -> datetime:
    return datetime.now(UTC).replace(tzinfo=None) - ago


def test_declaring_it_again(channel: Any, stream: str) -> None:
    again = declare(channel, stream)
    assert (again.queue, again.message_count, again.consumer_count) == (stream, 0, 0)
    assert channel.queue_declare(stream, passive=True).method.queue == stream


@pytest.mark.parametrize(
    ("options", "property"),
    [
        ({"durable": False}, "non-durable"),
        ({"durable": True, "exclusive": True}, "exclusive-owner"),
        ({"durable": True, "auto_delete": True}, "auto-delete"),
        ({"durable": False, "exclusive": True}, "exclusive-owner"),
        ({"durable": False, "exclusive": True, "auto_delete": True}, "auto-delete"),
    ],
)
def test_what_it_cannot_be(channel: Any, name: str, options: dict[str, Any], property: str) -> None:
    refused = refusal(lambda: channel.queue_declare(name, arguments=STREAM, **options))
    assert refused == (406, f"invalid property '{property}' for queue '{name}' in vhost '/'")


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("x-message-ttl", 1000),
        ("x-message-ttl", "soon"),
        ("x-expires", 1000),
        ("x-max-length", 10),
        ("x-max-priority", 5),
        ("x-dead-letter-exchange", "x"),
        ("x-dead-letter-routing-key", "k"),
        ("x-dead-letter-strategy", "at-most-once"),
        ("x-overflow", "drop-head"),
        ("x-single-active-consumer", True),
        ("x-delivery-limit", 3),
        ("x-queue-mode", "lazy"),
        ("x-queue-version", 2),
        ("x-queue-master-locator", "min-masters"),
        ("x-quorum-initial-group-size", 1),
        ("x-max-in-memory-length", 1),
    ],
)
def test_arguments_of_other_queues(channel: Any, name: str, argument: str, value: Any) -> None:
    refused = refusal(lambda: channel.queue_declare(name, durable=True, arguments=STREAM | {argument: value}))
    assert refused == (
        406,
        f"invalid arg '{argument}' for queue '{name}' in vhost '/' of queue type rabbit_stream_queue",
    )


@pytest.mark.parametrize(
    "argument", ["x-max-age", "x-stream-max-segment-size-bytes", "x-initial-cluster-size"]
)
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_other_queues_have_none_of_its_arguments(channel: Any, name: str, argument: str, kind: str) -> None:
    arguments = {"x-queue-type": kind, argument: "1h" if argument == "x-max-age" else 1000}
    refused = refusal(lambda: channel.queue_declare(name, durable=True, arguments=arguments))
    assert refused == (
        406,
        f"invalid arg '{argument}' for queue '{name}' in vhost '/' of queue type rabbit_{kind}_queue",
    )


@pytest.mark.parametrize(
    ("argument", "value", "wrong"),
    [
        ("x-max-length-bytes", -1, "{value_negative,-1}"),
        ("x-max-length-bytes", "a", '"expected integer, got longstr"'),
        ("x-max-age", "7 days", "invalid_max_age"),
        ("x-max-age", "0s", "invalid_max_age"),
        ("x-max-age", "1d", "invalid_max_age"),
        ("x-max-age", "1.5h", "invalid_max_age"),
        ("x-max-age", "1h ", "invalid_max_age"),
        ("x-stream-max-segment-size-bytes", -1, "{value_negative,-1}"),
        ("x-initial-cluster-size", 0, "{value_zero,0}"),
        ("x-queue-leader-locator", "nearest", "invalid_queue_locator_arg"),
    ],
)
def test_arguments_that_make_no_sense(channel: Any, name: str, argument: str, value: Any, wrong: str) -> None:
    refused = refusal(lambda: channel.queue_declare(name, durable=True, arguments=STREAM | {argument: value}))
    assert refused == (406, f"invalid arg '{argument}' for queue '{name}' in vhost '/': {wrong}")


def test_the_largest_segment(connection: Any, channel: Any, name: str) -> None:
    declare(channel, name, x_stream_max_segment_size_bytes=3_000_000_000)
    channel.queue_delete(name)
    refused = refusal(
        lambda: declare(connection.channel(), name, x_stream_max_segment_size_bytes=3_000_000_001)
    )
    assert refused == (406, "Exceeded max value for x-stream-max-segment-size-bytes")


@pytest.mark.parametrize("age", ["1s", "2m", "3h", "4D", "1M", "10Y", "01h"])
def test_ages(channel: Any, name: str, age: str) -> None:
    declare(channel, name, x_max_age=age)
    declare(channel, name, x_max_age=age)
    channel.queue_delete(name)


@pytest.mark.parametrize("kind", ["stream", "quorum"])
def test_the_broker_makes_up_no_name_for_it(channel: Any, kind: str) -> None:
    refused = refusal(lambda: channel.queue_declare("", durable=True, arguments={"x-queue-type": kind}))
    assert refused == (406, f"Cannot declare a server-named queue for type rabbit_{kind}_queue")


@pytest.mark.parametrize(
    ("options", "argument", "differs"),
    [
        (
            {"durable": True},
            "x-queue-type",
            "received none but current is the value 'stream' of type 'longstr'",
        ),
        (
            {"durable": True, "arguments": {"x-queue-type": "quorum"}},
            "x-queue-type",
            "received 'quorum' but current is 'stream'",
        ),
        ({"durable": False, "arguments": STREAM}, "durable", "received 'false' but current is 'true'"),
        (
            {"durable": True, "arguments": STREAM | {"x-max-age": "1h"}},
            "x-max-age",
            "received the value '1h' of type 'longstr' but current is none",
        ),
    ],
)
def test_declaring_it_otherwise(
    connection: Any, stream: str, options: dict[str, Any], argument: str, differs: str
) -> None:
    refused = refusal(lambda: connection.channel().queue_declare(stream, **options))
    assert refused == (406, f"inequivalent arg '{argument}' for queue '{stream}' in vhost '/': {differs}")


def test_what_a_consumer_must_say(rabbit: Rabbit, connection: Any, channel: Any, stream: str) -> None:
    subject = f"queue '{stream}' in vhost '/'"
    refused = refusal(lambda: Inbox(connection.channel(), stream))
    assert refused == (406, f"consumer prefetch count is not set for '{subject}'")
    with_priority = connection.channel()
    with_priority.basic_qos(prefetch_count=1)
    refused = refusal(lambda: Inbox(with_priority, stream, arguments={"x-priority": 1}))
    assert refused == (406, f"invalid arg 'x-priority' for {subject} of queue type rabbit_stream_queue")
    channel.queue_declare(f"{stream}-other", exclusive=True)
    refused = refusal(lambda: Inbox(connection.channel(), f"{stream}-other", arguments={HEADER: "first"}))
    assert refused[1].endswith("of queue type rabbit_classic_queue")

    def on_its_own(attempt: Callable[[Any], object]) -> tuple[int, str]:
        """These close the connection."""
        other = pika.BlockingConnection(pika.URLParameters(rabbit.url)).channel()
        other.basic_qos(prefetch_count=5)
        return refusal(lambda: attempt(other))

    def with_global_qos(other: Any) -> None:
        other.basic_qos(prefetch_count=5, global_qos=True)
        Inbox(other, stream)

    unsupported = f"not supported by stream queues {subject}"
    assert on_its_own(lambda other: Inbox(other, stream, auto_ack=True)) == (
        540,
        f"automatic acknowledgement {unsupported}",
    )
    assert on_its_own(with_global_qos) == (540, f"{subject} does not support global qos")
    assert on_its_own(lambda other: other.basic_get(stream)) == (540, f"basic.get {unsupported}")
    assert on_its_own(lambda other: other.queue_purge(stream)) == (540, f"queue.purge {unsupported}")


@pytest.mark.parametrize("start", ["5", "0s"])
def test_offsets_that_are_none(connection: Any, stream: str, start: str) -> None:
    refused = refusal(lambda: Reader(connection, stream, start))
    assert refused == (
        406,
        f"invalid arg 'x-stream-offset' for queue '{stream}' in vhost '/': "
        f'{{invalid_stream_offset_arg,{{longstr,<<"{start}">>}}}}',
    )


@pytest.mark.usefixtures("posthouse_only")  # RabbitMQ 3.10 fails, and closes the connection
@pytest.mark.parametrize("start", ["foo", "", "9" * 5000 + "s", True, None, [1], {"a": 1}], ids=repr)
def test_other_offsets_that_are_none(connection: Any, stream: str, start: Any) -> None:
    with pytest.raises(ChannelClosedByBroker) as caught:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=1)
        Inbox(channel, stream, arguments={HEADER: start})
    assert caught.value.reply_code == 406
    assert "invalid_stream_offset_arg" in caught.value.reply_text


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
