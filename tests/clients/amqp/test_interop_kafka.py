"""One message, both protocols: published by AMQP and read by Kafka clients, and the other way round."""

import json
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pika import BasicProperties

from posthouse.client import Client
from tests.clients.amqp.blocking import Inbox, get, get_all, publish, take, wait
from tests.clients.amqp.rabbit import Rabbit

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer

pytestmark = [
    pytest.mark.usefixtures("posthouse_only"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

QUIET = {"log_level": 0}
BASE = 1_700_000_000_000
PROPERTIES: dict[str, Any] = {
    "content_type": "application/json",
    "content_encoding": "utf-8",
    "headers": {
        "tenant": "blue",
        "attempt": 3,
        "urgent": True,
        "nested": {"a": [1, "b"]},
        "raw": b"\x00\xff",
        "nothing": None,
    },
    "delivery_mode": 2,
    "priority": 4,
    "correlation_id": "correlation",
    "reply_to": "replies",
    "message_id": "message",
    "timestamp": 1_700_000_000,
    "type": "order.created",
    "user_id": "guest",
    "app_id": "shop",
}
READABLE = {
    "amqp.content-type": b"application/json",
    "amqp.content-encoding": b"utf-8",
    "amqp.correlation-id": b"correlation",
    "amqp.reply-to": b"replies",
    "amqp.message-id": b"message",
    "amqp.type": b"order.created",
    "amqp.app-id": b"shop",
    "amqp.user-id": b"guest",
    "amqp.priority": b"4",
    "amqp.timestamp": b"1700000000",
    "tenant": b"blue",
    "attempt": b"3",
    "urgent": b"true",
    "raw": b"\x00\xff",
    "nothing": None,
}


class Record(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


@pytest.fixture
def kafka(rabbit: Rabbit) -> str:
    assert rabbit.kafka is not None
    return rabbit.kafka


def partitions(kafka: str, topic: str) -> list[int]:
    found = AdminClient({"bootstrap.servers": kafka, **QUIET}).list_topics(topic, timeout=20)
    return sorted(found.topics[topic].partitions)


def by_confluent(kafka: str, topic: str, count: int) -> list[Record]:
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "unused", **QUIET})
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions(kafka, topic)])
    found: list[Record] = []
    while len(found) < count:
        message = consumer.poll(20)
        assert message is not None, f"{len(found)} of {count} records came"
        assert message.error() is None, message.error()
        headers: Any = message.headers()
        found.append(Record(message.key(), message.value(), list(headers or [])))
    consumer.close()
    return found


def by_kafka_python(kafka: str, topic: str, count: int) -> list[Record]:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=kafka,
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
        group_id=None,
    )
    messages = [next(consumer) for _ in range(count)]
    consumer.close()
    return [Record(message.key, message.value, list(message.headers)) for message in messages]


def by_our_client(kafka: str, topic: str, count: int) -> list[Record]:
    with Client(kafka) as client:
        found = list(client.messages(topic))
    assert len(found) == count
    return [Record(each.key, each.value, list(each.headers)) for each in found]


READERS = [by_confluent, by_kafka_python, by_our_client]
Read = Callable[[str, str, int], list[Record]]


@pytest.fixture(params=["confluent", "kafka-python"])
def produce(request: pytest.FixtureRequest, kafka: str) -> Iterator[Callable[..., None]]:
    """Sends one record and waits for it to be acknowledged."""
    if request.param == "confluent":
        producer = Producer({"bootstrap.servers": kafka, **QUIET})

        def send(topic: str, value: bytes | None, **more: Any) -> None:
            producer.produce(topic, value, **more)
            assert producer.flush(20) == 0

        yield send
        return
    older = KafkaProducer(bootstrap_servers=kafka)

    def send_older(topic: str, value: bytes | None, **more: Any) -> None:
        if "timestamp" in more:
            more["timestamp_ms"] = more.pop("timestamp")
        older.send(topic, value, **more).get(20)

    yield send_older
    older.close()


@pytest.mark.parametrize("read", READERS)
def test_published_to_an_exchange(channel: Any, kafka: str, name: str, read: Read) -> None:
    """Key, value, and all of the properties as headers. The queue has it too."""
    channel.exchange_declare(name, "topic", auto_delete=True)
    channel.queue_declare(f"{name}-queue", exclusive=True)
    channel.queue_bind(f"{name}-queue", name, "orders.#")
    properties = BasicProperties(**PROPERTIES)
    channel.basic_publish(name, "orders.new", b'{"id": 1}', properties, mandatory=True)
    [record] = read(kafka, name, 1)
    assert (record.key, record.value) == (b"orders.new", b'{"id": 1}')
    headers = dict(record.headers)
    assert headers["posthouse.exchange"] == name.encode()
    assert json.loads(headers["nested"] or b"") == {"a": [1, "b"]}
    assert {header: headers.get(header) for header in READABLE} == READABLE
    found = get(channel, f"{name}-queue")
    assert found is not None
    assert (found.body, found.properties) == (b'{"id": 1}', properties)


@pytest.mark.parametrize("read", READERS)
def test_sent_to_a_queue(channel: Any, kafka: str, name: str, read: Read) -> None:
    """By the default exchange: the topic has the name of the queue; a consumer takes nothing away from it."""
    channel.queue_declare(name, exclusive=True)
    publish(channel, name, b"one", b"two", b"three")
    assert get_all(channel, name) == [b"one", b"two", b"three"]
    records = read(kafka, name, 3)
    assert {record.value for record in records} == {b"one", b"two", b"three"}
    assert {record.key for record in records} == {name.encode()}
    assert all(dict(record.headers)["posthouse.exchange"] == b"" for record in records)
    assert all("amqp.properties" not in dict(record.headers) for record in records), "it had none"


def test_one_message_for_many_queues_is_one_record(channel: Any, kafka: str, name: str) -> None:
    channel.exchange_declare(name, "fanout", auto_delete=True)
    for number in range(5):
        channel.queue_declare(f"{name}-{number}", exclusive=True)
        channel.queue_bind(f"{name}-{number}", name)
    channel.basic_publish(name, "", b"once", mandatory=True)
    assert [record.value for record in by_our_client(kafka, name, 1)] == [b"once"]
    assert [get_all(channel, f"{name}-{number}") for number in range(5)] == [[b"once"]] * 5


def test_produced_to_the_topic_of_an_exchange(channel: Any, name: str, produce: Callable[..., None]) -> None:
    """It is routed by its key like a message that was published."""
    channel.exchange_declare(name, "topic", auto_delete=True)
    channel.queue_declare(f"{name}-new", exclusive=True)
    channel.queue_bind(f"{name}-new", name, "*.new")
    channel.queue_declare(f"{name}-all", exclusive=True)
    channel.queue_bind(f"{name}-all", name, "#")
    headers = [("tenant", "blü".encode()), ("raw", b"\xff\x00")]
    produce(name, b"body", key=b"orders.new", headers=headers, timestamp=BASE + 999)
    produce(name, b"other", key=b"orders.old")
    [found] = take(channel, f"{name}-new", 1)
    assert (found.body, found.method.exchange, found.method.routing_key) == (b"body", name, "orders.new")
    assert found.properties.headers == {"tenant": "blü", "raw": b"\xff\x00"}
    assert found.properties.timestamp == BASE // 1000
    assert {each.body for each in take(channel, f"{name}-all", 2)} == {b"body", b"other"}
    assert get_all(channel, f"{name}-new") == []


def test_produced_to_the_topic_of_a_queue(
    channel: Any, connection: Any, name: str, produce: Callable[..., None]
) -> None:
    channel.queue_declare(name, exclusive=True)
    inbox = Inbox(connection.channel(), name, ack=True)
    produce(name, b"first", key=b"any key")
    produce(name, b"second")
    wait(lambda: len(inbox) == 2, connection)
    assert set(inbox.bodies) == {b"first", b"second"}
    [first] = [each for each in inbox if each.body == b"first"]
    assert (first.method.exchange, first.method.routing_key) == ("", "any key")
    [second] = [each for each in inbox if each.body == b"second"]
    assert second.method.routing_key == ""


def test_headers_of_a_record_are_matched(channel: Any, name: str, produce: Callable[..., None]) -> None:
    channel.exchange_declare(name, "headers", auto_delete=True)
    channel.queue_declare(name, exclusive=True)
    channel.queue_bind(name, name, arguments={"tenant": "blue"})
    produce(name, b"green", headers=[("tenant", b"green")])
    produce(name, b"blue", headers=[("tenant", b"blue")])
    assert [each.body for each in take(channel, name, 1)] == [b"blue"]
    assert get_all(channel, name) == []


def test_record_without_a_value(channel: Any, name: str, produce: Callable[..., None]) -> None:
    channel.queue_declare(name, exclusive=True)
    produce(name, None, key=b"key")
    [found] = take(channel, name, 1)
    assert (found.body, found.method.routing_key) == (b"", "key")


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches(channel: Any, kafka: str, name: str, codec: str) -> None:
    channel.queue_declare(name, exclusive=True)
    config: dict[str, Any] = {"compression.type": codec, "linger.ms": 50, **QUIET}
    producer = Producer({"bootstrap.servers": kafka, **config})
    for number in range(200):
        producer.produce(name, b"value %d" % number, key=b"one key for one partition")
    assert producer.flush(20) == 0
    assert [each.body for each in take(channel, name, 200)] == [b"value %d" % number for number in range(200)]


def test_transactions_of_kafka(channel: Any, kafka: str, name: str) -> None:
    """Only what was committed reaches the queue."""
    channel.queue_declare(name, exclusive=True)
    config: dict[str, Any] = {"transactional.id": name, **QUIET}
    producer = Producer({"bootstrap.servers": kafka, **config})
    producer.init_transactions(20)
    for value, end in (
        (b"aborted", producer.abort_transaction),
        (b"committed", producer.commit_transaction),
        (b"also aborted", producer.abort_transaction),
        (b"last", producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.produce(name, value, key=b"key")
        producer.flush(20)
        end(20)
    assert [each.body for each in take(channel, name, 2)] == [b"committed", b"last"]
    assert get_all(channel, name) == []


def test_record_that_went_through_kafka_is_the_message_that_it_was(
    channel: Any, kafka: str, name: str
) -> None:
    """A stream processor that copies key, value and headers keeps every property."""
    channel.queue_declare(f"{name}-in", exclusive=True)
    channel.queue_declare(f"{name}-out", exclusive=True)
    properties = BasicProperties(**PROPERTIES)
    channel.basic_publish("", f"{name}-in", b"body", properties, mandatory=True)
    [record] = by_confluent(kafka, f"{name}-in", 1)
    producer = Producer({"bootstrap.servers": kafka, **QUIET})
    headers: Any = record.headers
    producer.produce(f"{name}-out", record.value, key=record.key, headers=headers)
    assert producer.flush(20) == 0
    [found] = take(channel, f"{name}-out", 1)
    assert (found.body, found.properties) == (b"body", properties)


def test_dead_letters_can_be_read_as_a_topic(channel: Any, kafka: str, name: str) -> None:
    channel.exchange_declare(f"{name}-dead", "fanout", auto_delete=True)
    channel.queue_declare(f"{name}-dead", exclusive=True)
    channel.queue_bind(f"{name}-dead", f"{name}-dead")
    channel.queue_declare(name, exclusive=True, arguments={"x-dead-letter-exchange": f"{name}-dead"})
    publish(channel, name, b"bad", headers={"tenant": "blue"})
    channel.basic_reject(channel.basic_get(name)[0].delivery_tag, requeue=False)
    take(channel, f"{name}-dead", 1)
    [record] = by_confluent(kafka, f"{name}-dead", 1)
    headers = dict(record.headers)
    assert (record.value, headers["tenant"]) == (b"bad", b"blue")
    [death] = json.loads(headers["posthouse.deaths"] or b"")
    assert (death["queue"], death["reason"], death["count"]) == (name, "rejected", 1)


def test_topic_with_several_partitions(channel: Any, kafka: str, name: str) -> None:
    """A queue takes from all of them; the order of each is kept."""
    admin = AdminClient({"bootstrap.servers": kafka, **QUIET})
    admin.create_topics([NewTopic(name, 3)])[name].result(20)
    channel.queue_declare(name, exclusive=True)
    producer = Producer({"bootstrap.servers": kafka, **QUIET})
    for number in range(90):
        producer.produce(name, b"%d" % number, key=b"%d" % (number % 3), partition=number % 3)
    assert producer.flush(20) == 0
    found = [(each.method.routing_key, int(each.body)) for each in take(channel, name, 90)]
    for key in range(3):
        assert [number for own, number in found if own == str(key)] == list(range(key, 90, 3))
