"""Clients of Kafka and AMQP beside those of RocketMQ, on the same topics."""

import time
from types import TracebackType
from typing import Any, Self

import pika
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from posthouse.testing import ThreadBroker

HOUR_MS = 3_600_000
SECONDS = 60.0
INBOX = [
    "grüße von AMQP {KEYS=from.amqp, tenant=blåu}",
    "grüße von Kafka {KEYS=from.kafka, TAGS=red, tenant=röt}",
    "ohne alles {}",
]
"""What the topic `inbox` has for RocketMQ's clients after `fill_inbox`."""


class AmqpQueue:
    """A queue that gets each message of a topic from now on."""

    def __init__(self, broker: ThreadBroker, topic: str) -> None:
        self._connection = _connection(broker)
        self._channel = self._connection.channel()
        self._channel.exchange_declare(topic, "topic", durable=True)
        self._name = f"all of {topic}"
        self._channel.queue_declare(self._name, durable=True)
        self._channel.queue_bind(self._name, topic, "#")

    def take(self, count: int) -> dict[str, tuple[bytes, dict[str, Any]]]:
        """Bodies and headers, by the routing key, which is the key of the message."""
        found: dict[str, tuple[bytes, dict[str, Any]]] = {}
        for method, properties, body in self._channel.consume(self._name, inactivity_timeout=SECONDS):
            assert method is not None, f"{len(found)} of {count} messages came"
            found[method.routing_key] = body, properties.headers
            self._channel.basic_ack(method.delivery_tag)
            if len(found) == count:
                break
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._connection.close()


def _connection(broker: ThreadBroker) -> pika.BlockingConnection:
    host, _, port = broker.amqp.rpartition(":")
    return pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))


def fill_inbox(broker: ThreadBroker, topic: str = "inbox") -> None:
    """One message of AMQP and two of Kafka."""
    connection = _connection(broker)
    channel = connection.channel()
    channel.exchange_declare(topic, "fanout", durable=True)
    channel.confirm_delivery()
    properties = pika.BasicProperties(headers={"tenant": "blåu"}, content_type="text/plain")
    channel.basic_publish(topic, "from.amqp", "grüße von AMQP".encode(), properties)
    connection.close()
    producer = Producer({"bootstrap.servers": broker.kafka})
    producer.produce(topic, "grüße von Kafka", "from.kafka", headers={"tenant": "röt", "TAGS": "red"})
    producer.produce(topic, "ohne alles")
    assert producer.flush(30) == 0


def prepare_replay(broker: ThreadBroker) -> int:
    """Ten records of the topic `replay`, one an hour, of which the first is gone. The time of record 5."""
    admin = AdminClient({"bootstrap.servers": broker.kafka})
    admin.create_topics([NewTopic("replay", 1)])["replay"].result(30)
    first = (int(time.time()) - 20 * 3600) * 1000
    producer = Producer({"bootstrap.servers": broker.kafka})
    for number in range(10):
        producer.produce("replay", str(number), partition=0, timestamp=first + number * HOUR_MS)
    assert producer.flush(30) == 0
    gone = TopicPartition("replay", 0, 1)
    admin.delete_records([gone])[gone].result(30)
    return first + 5 * HOUR_MS


def consumed(broker: ThreadBroker, topic: str, count: int) -> list[Message]:
    """Records of a topic, by Kafka's client."""
    consumer = Consumer({"bootstrap.servers": broker.kafka, "group.id": "unused"})
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in partitions])
    found: list[Message] = []
    while len(found) < count:
        message = consumer.poll(SECONDS)
        assert message is not None, f"{len(found)} of {count} records came"
        assert message.error() is None, message.error()
        found.append(message)
    consumer.close()
    return found


def read_all(bootstrap: str, topic: str) -> list[bytes]:
    """The values of a topic that gets no more records."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.partition.eof": True})
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in partitions])
    found: list[bytes] = []
    ends = 0
    while ends < len(partitions):
        message = consumer.poll(SECONDS)
        assert message is not None, f"{ends} of {len(partitions)} partitions were read"
        error = message.error()
        if error is None:
            found.append(message.value() or b"")
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ends += 1
    consumer.close()
    return found


def headers(message: Message) -> dict[str, Any]:
    return dict(message.headers() or [])
