"""Transactions with confluent-kafka (librdkafka), unmodified."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

MakeProducer = Callable[..., Producer]


@pytest.fixture
def make_producer(kafka: str) -> Iterator[MakeProducer]:
    made: list[Producer] = []

    def make(id: str, **config: Any) -> Producer:
        settings = {"bootstrap.servers": kafka, "transactional.id": id, "log_level": 0}
        producer = Producer(settings | config)
        producer.init_transactions(30)
        made.append(producer)
        return producer

    yield make
    made.clear()


@pytest.fixture
def topics(kafka: str, topic: str) -> tuple[str, str]:
    """An input and an output, with two partitions each."""
    names = (f"{topic}-in", f"{topic}-out")
    admin = AdminClient({"bootstrap.servers": kafka})
    created = admin.create_topics([NewTopic(name, 2, 1) for name in names])
    for each in created.values():
        each.result(30)
    return names


def read(kafka: str, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """Everything up to the end, in no order over partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(2)])
    found, ended = [], 0
    while ended < 2:
        message = consumer.poll(30)
        assert message is not None
        error, value = message.error(), message.value()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF
            ended += 1
        else:
            assert isinstance(value, bytes)
            found.append(value)
    consumer.close()
    return found


def test_idempotent(kafka: str, topics: tuple[str, str]) -> None:
    producer = Producer({"bootstrap.servers": kafka, "enable.idempotence": True})
    for number in range(1000):
        producer.produce(topics[0], b"%d" % number, partition=number % 2)
    assert producer.flush(30) == 0
    assert sorted(read(kafka, topics[0]), key=int) == [b"%d" % number for number in range(1000)]


def test_commit_and_abort(kafka: str, topics: tuple[str, str], make_producer: MakeProducer) -> None:
    producer = make_producer(topics[0])
    for number in range(6):
        producer.begin_transaction()
        for partition in range(2):
            producer.produce(topics[0], b"%d" % number, partition=partition)
        if number % 3 == 2:
            producer.flush(30)
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    assert sorted(read(kafka, topics[0])) == sorted([b"0", b"1", b"3", b"4"] * 2)
    assert sorted(read(kafka, topics[0], "read_uncommitted")) == sorted(
        b"%d" % n for n in range(6) for _ in "ab"
    )


def test_nothing_open_is_seen(kafka: str, topics: tuple[str, str], make_producer: MakeProducer) -> None:
    producer = make_producer(topics[0])
    producer.begin_transaction()
    producer.produce(topics[0], b"open", partition=0)
    producer.flush(30)
    plain = Producer({"bootstrap.servers": kafka})
    plain.produce(topics[0], b"behind", partition=0)
    plain.flush(30)
    assert read(kafka, topics[0]) == []
    producer.commit_transaction(30)
    assert read(kafka, topics[0]) == [b"open", b"behind"]


def test_a_second_producer_fences_the_first(
    kafka: str, topics: tuple[str, str], make_producer: MakeProducer
) -> None:
    first = make_producer(topics[0])
    first.begin_transaction()
    first.produce(topics[0], b"lost", partition=0)
    first.flush(30)
    second = make_producer(topics[0])
    with pytest.raises(KafkaException) as raised:
        first.commit_transaction(30)
    assert raised.value.args[0].fatal()
    second.begin_transaction()
    second.produce(topics[0], b"kept", partition=0)
    second.commit_transaction(30)
    assert read(kafka, topics[0]) == [b"kept"]


def test_a_transaction_that_takes_too_long(
    kafka: str, topics: tuple[str, str], make_producer: MakeProducer
) -> None:
    config = {"transaction.timeout.ms": 1000, "socket.timeout.ms": 500, "message.timeout.ms": 1000}
    producer = make_producer(topics[0], **config)
    producer.begin_transaction()
    producer.produce(topics[0], b"slow", partition=0)
    producer.flush(30)
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "waits", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topics[0], 0, 0)])
    message = consumer.poll(30)
    while message is None or message.offset() == 0:
        message = consumer.poll(30)
    assert message.error() is not None and message.offset() == 2, "the end lies behind the marker"
    consumer.close()
    with pytest.raises(KafkaException):
        producer.commit_transaction(30)


def test_read_process_write(kafka: str, topics: tuple[str, str], make_producer: MakeProducer) -> None:
    """Every input is in the output once, with an abort and a rebalance in between."""
    source, target = topics
    plain = Producer({"bootstrap.servers": kafka})
    for number in range(200):
        plain.produce(source, b"%d" % number, partition=number % 2)
    plain.flush(30)
    producer = make_producer(source)
    consumer = _subscribed(kafka, source)
    processed: set[bytes] = set()
    for turn in range(1000):
        messages = [each for each in consumer.consume(20, 1.0) if each.error() is None]
        if not messages and len(processed) == 200:
            break
        producer.begin_transaction()
        for message in messages:
            value = message.value()
            assert isinstance(value, bytes)
            producer.produce(target, value, partition=message.partition() or 0)
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 30
        )
        if turn == 3:
            producer.abort_transaction(30)
            consumer.close()
            consumer = _subscribed(kafka, source)
        else:
            producer.commit_transaction(30)
            processed.update(message.value() or b"" for message in messages)
    consumer.close()
    assert sorted(read(kafka, target), key=int) == [b"%d" % number for number in range(200)]


def _subscribed(kafka: str, topic: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": f"{topic}-processors",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
        }
    )
    consumer.subscribe([topic])
    return consumer
