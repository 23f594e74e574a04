"""What streams and their consumers are declared with, by pika's blocking connection."""

from collections.abc import Callable
from typing import Any

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

from tests.clients.amqp.blocking import Inbox
from tests.clients.amqp.rabbit import Rabbit
from tests.clients.amqp.streams import HEADER, STREAM, Reader, declare, refusal


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
