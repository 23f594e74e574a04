"""Reads from one topic and writes to another, each batch in a transaction with its offsets.

Run as a program of its own, so that it can be killed: `python -m tests.crash.processor BOOTSTRAP NAME`.
Whatever goes wrong, it starts anew from what is committed.
"""

import sys

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

SOURCE = "orders"
TARGET = "shipments"
GROUP = "processors"


def process_for_ever(bootstrap: str, name: str) -> None:
    while True:
        try:
            _process(bootstrap, name)
        except KafkaException as error:
            print(f"{name} starts anew: {error}", file=sys.stderr, flush=True)


def _process(bootstrap: str, name: str) -> None:
    common = {"bootstrap.servers": bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200} | {
        # A librdkafka that bootstraps again forgets to tell the request that waits for its coordinator.
        "metadata.recovery.strategy": "none"
    }
    producer = Producer(common | {"transactional.id": name, "transaction.timeout.ms": 10_000})
    producer.init_transactions(30)
    consumer = Consumer(
        common
        | {"group.id": GROUP, "group.instance.id": name, "enable.auto.commit": False}
        | {"auto.offset.reset": "earliest", "session.timeout.ms": 6000, "fetch.wait.max.ms": 20}
    )
    try:
        consumer.subscribe([SOURCE])
        while True:
            messages = [each for each in consumer.consume(20, 0.2) if each.error() is None]
            if messages:
                _move(messages, consumer, producer)
    finally:
        consumer.close()


def _move(messages: list[Message], consumer: Consumer, producer: Producer) -> None:
    producer.begin_transaction()
    following: dict[int, int] = {}
    for message in messages:
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None and offset is not None and isinstance(value, bytes)
        producer.produce(TARGET, value, partition=partition)
        following[partition] = offset + 1
    offsets = [TopicPartition(SOURCE, partition, offset) for partition, offset in following.items()]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
    producer.commit_transaction(30)


if __name__ == "__main__":
    process_for_ever(sys.argv[1], sys.argv[2])
