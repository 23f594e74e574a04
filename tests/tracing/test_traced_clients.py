"""Spans of messages that real clients send and read."""

import time
import warnings
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pika
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from opentelemetry.trace import SpanKind, StatusCode
from pika import BasicProperties

from posthouse.testing import ThreadBroker
from tests.tracing.collected import SECONDS, Collected, Parent, attributes, context, is_child

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer
    from kafka import TopicPartition as OtherTopicPartition

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

Headers = list[tuple[str, str | bytes | None]]

QUIET = {"log_level": 0}


def send(broker: ThreadBroker, topic: str, headers: list[Headers], **config: Any) -> None:
    """One record for each, in one batch."""
    producer = Producer({"bootstrap.servers": broker.kafka, "linger.ms": 100, **QUIET, **config})
    for each in headers:
        producer.produce(topic, b"value", partition=0, headers=each)
    assert producer.flush(SECONDS) == 0


def fetch(broker: ThreadBroker, topic: str, count: int, offset: int = OFFSET_BEGINNING) -> list[Any]:
    consumer = Consumer(
        {"bootstrap.servers": broker.kafka, "group.id": "readers", "client.id": "reader-1", **QUIET}
    )
    consumer.assign([TopicPartition(topic, 0, offset)])
    found = [consumer.poll(SECONDS) for _ in range(count)]
    consumer.close()
    return found


def channel_of(broker: ThreadBroker) -> Any:
    host, _, port = broker.amqp.rpartition(":")
    return pika.BlockingConnection(pika.ConnectionParameters(host, int(port))).channel()


def carried(parent: Parent, **more: str) -> Headers:
    return [("traceparent", parent.header.encode()), *((name, more[name].encode()) for name in more)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_record_of_confluent_kafka_is_sent_committed_and_fetched(
    traced: ThreadBroker, collected: Collected, codec: str
) -> None:
    parent = Parent()
    config = {"compression.type": codec}
    send(traced, "orders", [[], carried(parent, tracestate="vendor=1"), []], **config)
    [sent] = collected.wait("send orders")
    assert is_child(sent, parent)
    assert sent.kind is SpanKind.SERVER
    assert context(sent).trace_state.to_header() == "vendor=1"
    assert attributes(sent) == {
        "messaging.system": "posthouse",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.batch.message_count": 3,
        "messaging.kafka.offset": 1,
    }
    [committed] = collected.wait("commit orders")
    assert committed.parent == context(sent)
    assert sent.start_time <= committed.start_time <= committed.end_time == sent.end_time  # type: ignore[operator]

    messages = fetch(traced, "orders", 3)
    assert messages[1].headers() == carried(parent, tracestate="vendor=1")
    [fetched] = collected.wait("fetch orders")
    assert is_child(fetched, parent)
    assert fetched.start_time >= sent.end_time  # type: ignore[operator]
    assert attributes(fetched)["messaging.operation.type"] == "receive"
    assert attributes(fetched)["messaging.kafka.offset"] == 1
    assert attributes(fetched)["messaging.client.id"] == "reader-1"


def test_a_record_of_kafka_python_is_sent_and_fetched(traced: ThreadBroker, collected: Collected) -> None:
    parent = Parent()
    producer = KafkaProducer(bootstrap_servers=traced.kafka)
    producer.send("orders", b"value", headers=carried(parent)).get(SECONDS)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=traced.kafka, auto_offset_reset="earliest")
    consumer.assign([OtherTopicPartition("orders", 0)])
    assert next(consumer).value == b"value"
    consumer.close()
    for name in ("send orders", "fetch orders"):
        assert is_child(collected.wait(name)[0], parent)


def test_records_below_the_offset_that_was_asked_for_are_not_fetched(
    traced: ThreadBroker, collected: Collected
) -> None:
    first, second = Parent(), Parent()
    send(traced, "orders", [carried(first), carried(second)])
    fetch(traced, "orders", 1, offset=1)
    collected.wait("fetch orders")
    assert [span.name for span in collected.children(first)] == ["send orders"]
    assert sorted(span.name for span in collected.children(second)) == ["fetch orders", "send orders"]


def test_a_batch_of_several_traces_links_to_them(traced: ThreadBroker, collected: Collected) -> None:
    parents = [Parent() for _ in range(3)]
    send(traced, "orders", [carried(parent) for parent in parents])
    spans = collected.wait("send orders", 4)
    [batch] = [span for span in spans if span.parent is None]
    assert [(link.context.trace_id, link.context.span_id) for link in batch.links] == [
        (parent.trace, parent.span) for parent in parents
    ]
    assert [dict(link.attributes or {}) for link in batch.links] == [
        {"messaging.kafka.offset": offset} for offset in range(3)
    ]
    assert attributes(batch)["messaging.batch.message_count"] == 3
    for offset, parent in enumerate(parents):
        [span] = collected.children(parent)
        assert [link.context for link in span.links] == [context(batch)]
        assert attributes(span)["messaging.kafka.offset"] == offset
        assert "messaging.batch.message_count" not in attributes(span)
    [committed] = collected.wait("commit orders")
    assert committed.parent == context(batch)


def test_a_batch_of_several_spans_of_one_trace_stays_in_it(
    traced: ThreadBroker, collected: Collected
) -> None:
    first = Parent()
    second = Parent(trace=first.trace)
    send(traced, "orders", [carried(first), carried(second), carried(second)])
    spans = collected.wait("send orders", 2)
    assert {context(span).trace_id for span in spans} == {first.trace}
    [leader], [other] = collected.children(first), collected.children(second)
    assert [link.context for link in other.links] == [context(leader)]
    assert attributes(other)["messaging.batch.message_count"] == 2


@pytest.mark.parametrize(
    "header",
    [
        Parent(sampled=False).header,
        "",
        "00",
        "00-" + "0" * 32 + "-" + "1" * 16 + "-01",
        "00-" + "1" * 32 + "-" + "0" * 16 + "-01",
        "ff-" + "1" * 32 + "-" + "1" * 16 + "-01",
        "00-" + "G" * 32 + "-" + "1" * 16 + "-01",
        Parent().header + "-more",
        "\udcff" * 55,
    ],
    ids=["unsampled", "empty", "short", "no trace", "no span", "version", "no hex", "too long", "no text"],
)
def test_other_contexts_make_no_spans(traced: ThreadBroker, collected: Collected, header: str) -> None:
    good = Parent()
    sent = header.encode(errors="surrogateescape")
    send(traced, "orders", [[("traceparent", sent)]])
    send(traced, "last", [carried(good)])
    fetch(traced, "orders", 1)
    fetch(traced, "last", 1)
    collected.wait("fetch last")
    assert {span.name for span in collected.spans} == {"send last", "commit last", "fetch last"}


def test_a_refused_batch_is_an_error(traced: ThreadBroker, collected: Collected) -> None:
    parent = Parent()
    producer = Producer({"bootstrap.servers": traced.kafka, **QUIET})
    year = 365 * 24 * 3600 * 1000
    producer.produce("orders", b"", partition=0, headers=carried(parent), timestamp=3000 * year)
    assert producer.flush(SECONDS) == 0
    [refused] = collected.wait("send orders")
    assert is_child(refused, parent)
    assert refused.status.status_code is StatusCode.ERROR
    assert attributes(refused)["error.type"] == "InvalidTimestamp"
    assert "messaging.kafka.offset" not in attributes(refused)
    assert not collected.named("commit orders")


Take = Callable[[Any, str], Any]


def consumed(channel: Any, queue: str) -> Any:
    method, _, _ = next(channel.consume(queue, inactivity_timeout=SECONDS))
    channel.basic_ack(method.delivery_tag)
    channel.cancel()
    return method


def got(channel: Any, queue: str) -> Any:
    return channel.basic_get(queue, auto_ack=True)[0]


@pytest.mark.parametrize("take", [consumed, got])
def test_a_message_of_pika_is_sent_committed_and_delivered(
    traced: ThreadBroker, collected: Collected, take: Take
) -> None:
    parent = Parent()
    channel = channel_of(traced)
    channel.confirm_delivery()
    channel.queue_declare("mails")
    properties = BasicProperties(headers={"traceparent": parent.header, "tracestate": "vendor=1"})
    channel.basic_publish("", "mails", b"body", properties, mandatory=True)
    assert take(channel, "mails") is not None
    [sent], [delivered] = collected.wait("send mails"), collected.wait("deliver mails")
    [committed] = collected.wait("commit mails")
    assert is_child(sent, parent)
    assert is_child(delivered, parent)
    assert committed.parent == context(sent)
    assert context(delivered).trace_state.to_header() == "vendor=1"
    found = attributes(delivered)
    assert found.pop("posthouse.message.age_ms") >= 0  # type: ignore[operator]
    assert found == {
        "messaging.system": "posthouse",
        "messaging.operation.name": "deliver",
        "messaging.operation.type": "receive",
        "messaging.destination.name": "mails",
        "messaging.destination_publish.name": "mails",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 0,
        "posthouse.message.redelivered": False,
    }
    channel.connection.close()


def test_a_second_delivery_is_another_span(traced: ThreadBroker, collected: Collected) -> None:
    parent = Parent()
    channel = channel_of(traced)
    channel.queue_declare("mails")
    channel.basic_publish("", "mails", b"", BasicProperties(headers={"traceparent": parent.header}))
    method = None
    while method is None:
        method, _, _ = channel.basic_get("mails")
    channel.basic_nack(method.delivery_tag, requeue=True)
    method = None
    while method is None:
        method, _, _ = channel.basic_get("mails")
    spans = collected.wait("deliver mails", 2)
    assert [attributes(span)["posthouse.message.redelivered"] for span in spans] == [False, True]
    channel.connection.close()


def test_a_stream_delivers_with_spans(traced: ThreadBroker, collected: Collected) -> None:
    parent = Parent()
    channel = channel_of(traced)
    channel.confirm_delivery()
    channel.queue_declare("events", durable=True, arguments={"x-queue-type": "stream"})
    channel.basic_publish("", "events", b"", BasicProperties(headers={"traceparent": parent.header}))
    channel.basic_qos(prefetch_count=10)
    arguments = {"x-stream-offset": "first"}
    for method, _, _ in channel.consume("events", arguments=arguments, inactivity_timeout=SECONDS):
        assert method is not None
        break
    assert is_child(collected.wait("deliver events")[0], parent)
    channel.cancel()
    channel.connection.close()


def test_kafka_producer_and_amqp_consumer_share_the_trace(traced: ThreadBroker, collected: Collected) -> None:
    parent = Parent()
    channel = channel_of(traced)
    channel.exchange_declare("orders", "fanout", durable=True)
    channel.queue_declare("mails")
    channel.queue_bind("mails", "orders")
    channel.confirm_delivery()
    channel.basic_publish("orders", "", b"makes the topic of the exchange")
    send(traced, "orders", [carried(parent)])
    for method, properties, _ in channel.consume("mails", inactivity_timeout=SECONDS):
        assert method is not None
        channel.basic_ack(method.delivery_tag)
        if properties.headers:
            assert properties.headers["traceparent"] == parent.header
            break
    channel.cancel()
    [sent], [delivered] = collected.wait("send orders"), collected.wait("deliver mails")
    assert is_child(sent, parent)
    assert is_child(delivered, parent)
    assert attributes(delivered)["messaging.destination_publish.name"] == "orders"
    channel.connection.close()


def test_amqp_publisher_and_kafka_consumer_share_the_trace(
    traced: ThreadBroker, collected: Collected
) -> None:
    parent = Parent()
    channel = channel_of(traced)
    channel.queue_declare("mails")
    channel.confirm_delivery()
    channel.basic_publish("", "mails", b"body", BasicProperties(headers={"traceparent": parent.header}))
    channel.connection.close()
    [message] = fetch(traced, "mails", 1)
    assert dict(message.headers())["traceparent"] == parent.header.encode()
    assert is_child(collected.wait("fetch mails")[0], parent)


def published(channel: Any, parent: Parent, **headers: Any) -> None:
    properties = BasicProperties(headers={"traceparent": parent.header, **headers})
    channel.basic_publish("", "mails", b"body", properties, mandatory=True)


def test_a_dead_letter_stays_in_its_trace(traced: ThreadBroker, collected: Collected) -> None:
    parent = Parent()
    channel = channel_of(traced)
    channel.confirm_delivery()
    channel.queue_declare("dead")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    channel.queue_declare("mails", arguments=arguments)
    published(channel, parent)
    method, _, _ = channel.basic_get("mails")
    channel.basic_reject(method.delivery_tag, requeue=False)
    consumed(channel, "dead")
    for name in ("send mails", "deliver mails", "send dead", "deliver dead"):
        assert is_child(collected.wait(name)[0], parent)
    channel.connection.close()


def test_a_delayed_message_is_sent_when_it_is_due(traced: ThreadBroker, collected: Collected) -> None:
    parent = Parent()
    channel = channel_of(traced)
    channel.confirm_delivery()
    channel.exchange_declare("later", "x-delayed-message", arguments={"x-delayed-type": "fanout"})
    channel.queue_declare("mails")
    channel.queue_bind("mails", "later")
    properties = BasicProperties(headers={"traceparent": parent.header, "x-delay": 300})
    published_at = time.time_ns()
    channel.basic_publish("later", "", b"body", properties)
    consumed(channel, "mails")
    [sent], [delivered] = collected.wait("send later"), collected.wait("deliver mails")
    assert is_child(sent, parent)
    assert is_child(delivered, parent)
    assert sent.start_time >= published_at + 250_000_000  # type: ignore[operator]
    channel.connection.close()


def test_messages_of_a_transaction_are_traced(traced: ThreadBroker, collected: Collected) -> None:
    parent = Parent()
    channel = channel_of(traced)
    channel.queue_declare("mails")
    channel.tx_select()
    published(channel, parent)
    channel.tx_commit()
    consumed(channel, "mails")
    for name in ("send mails", "commit mails", "deliver mails"):
        collected.wait(name)
    channel.connection.close()


@pytest.mark.skipif(not hasattr(confluent_kafka, "ShareConsumer"), reason="needs confluent-kafka 2.16")
def test_a_share_group_fetches_with_spans(traced: ThreadBroker, collected: Collected) -> None:
    parent = Parent()
    consumer = confluent_kafka.ShareConsumer(
        {"bootstrap.servers": traced.kafka, "group.id": "shares", "client.id": "sharing", **QUIET}
    )
    send(traced, "orders", [[]])  # creates the topic; the group begins at its end
    consumer.subscribe(["orders"])
    found: list[Any] = []
    deadline = time.monotonic() + SECONDS
    while not found and time.monotonic() < deadline:
        send(traced, "orders", [carried(parent)])
        found += consumer.poll(1)
    consumer.close()
    span = collected.wait("fetch orders")[0]
    assert is_child(span, parent)
    assert attributes(span)["messaging.client.id"] == "sharing"
