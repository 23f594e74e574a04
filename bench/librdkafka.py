"""Produce and consume with an unmodified confluent-kafka client."""

import os
import time
from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

CHUNK = 10_000
PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class Rate:
    records: int
    bytes: int
    seconds: float

    @property
    def mb_per_second(self) -> float:
        return self.bytes / self.seconds / 1e6

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds


def create_topic(bootstrap: str, name: str, partitions: int, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [created] = admin.create_topics([NewTopic(name, partitions, 1, config=config)]).values()
    created.result(120)


def produce(bootstrap: str, topic: str, record_bytes: int, records: int) -> Rate:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 20,
            "queue.buffering.max.messages": 10 * CHUNK,
            "queue.buffering.max.kbytes": 256 * 1024,
        }
    )
    values = [{"value": os.urandom(record_bytes)} for _ in range(CHUNK)]
    producer.list_topics(topic, timeout=30)
    begun = time.perf_counter()
    for _ in range(records // CHUNK):
        for partition in range(PARTITIONS):
            share = values[partition::PARTITIONS]
            queued = 0
            while queued < len(share):
                taken = producer.produce_batch(topic, share[queued:], partition=partition)
                queued += taken
                producer.poll(0 if taken else 0.01)
    if producer.flush(120):
        raise RuntimeError("the broker did not take every record")
    seconds = time.perf_counter() - begun
    count = records // CHUNK * CHUNK
    return Rate(count, count * record_bytes, seconds)


def consume(bootstrap: str, topic: str, record_bytes: int, records: int) -> Rate:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.max.bytes": 8 * 1024 * 1024,
            "fetch.wait.max.ms": 50,
        }
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    begun = time.perf_counter()
    count = 0
    while count < records:
        messages = consumer.consume(CHUNK, timeout=10)
        if not messages:
            raise RuntimeError(f"only {count} of {records} records came back")
        count += len(messages)
    seconds = time.perf_counter() - begun
    consumer.close()
    return Rate(count, count * record_bytes, seconds)
