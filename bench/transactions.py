"""What transactions cost: the same records with and without, and how many small ones fit into a second."""

import os
import time
import uuid

from confluent_kafka import Producer

RECORD = os.urandom(1024)


def _producer(bootstrap: str, *, transactional: bool) -> Producer:
    settings: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "enable.idempotence": True,
        "linger.ms": 5,
        "queue.buffering.max.messages": 200_000,
    }
    if transactional:
        settings["transactional.id"] = str(uuid.uuid4())
    producer = Producer(settings)
    if transactional:
        producer.init_transactions(30)
    return producer


def plain_rate(bootstrap: str, topic: str, records: int) -> float:
    """Records per second of an idempotent producer without transactions."""
    producer = _producer(bootstrap, transactional=False)
    producer.list_topics(topic, timeout=30)
    begun = time.perf_counter()
    for _ in range(records):
        _send(producer, topic)
    if producer.flush(60):
        raise RuntimeError("the broker did not take every record")
    return records / (time.perf_counter() - begun)


def transactional_rate(bootstrap: str, topic: str, records: int, per_transaction: int) -> float:
    """Records per second, committed in transactions of so many."""
    producer = _producer(bootstrap, transactional=True)
    begun = time.perf_counter()
    for _ in range(records // per_transaction):
        producer.begin_transaction()
        for _ in range(per_transaction):
            _send(producer, topic)
        producer.commit_transaction(60)
    return records / (time.perf_counter() - begun)


def _send(producer: Producer, topic: str) -> None:
    while True:
        try:
            producer.produce(topic, RECORD)
        except BufferError:
            producer.poll(0.01)
        else:
            producer.poll(0)
            return
