"""Rows of a log and of its archive, to be compared, and a log that has some of everything."""

from datetime import UTC
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import DataFrame

from posthouse.client import Client
from posthouse.testing import ThreadBroker
from tests.spark.archive.records import DAY_MS, NOON

Row = tuple[int, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Partition, offset, timestamp, key, value, headers."""


def log_of(client: Client, topic: str) -> list[Row]:
    """What is committed in the log, read by the plain client."""
    return sorted(
        (
            message.partition,
            message.offset,
            message.timestamp,
            message.key,
            message.value,
            tuple((_text(key), value) for key, value in message.headers),
        )
        for message in client.messages(topic)
    )


def _text(key: str | bytes) -> str:
    return key if isinstance(key, str) else key.decode()


def _headers(row: Any) -> tuple[tuple[str, bytes | None], ...]:
    found = row.asDict().get("headers") or ()
    return tuple((each.key, None if each.value is None else bytes(each.value)) for each in found)


def rows_of(frame: DataFrame) -> list[Row]:
    return sorted(
        (
            row.partition,
            row.offset,
            round(row.timestamp.replace(tzinfo=UTC).timestamp() * 1000),
            None if row.key is None else bytes(row.key),
            None if row.value is None else bytes(row.value),
            _headers(row),
        )
        for row in frame.collect()
    )


def fill(writer: Producer, topic: str, count: int, *, days: int = 1, partitions: int = 2) -> None:
    for number in range(count):
        writer.produce(
            topic,
            key=None if number % 5 == 0 else b"key %d" % number,
            value=None if number % 7 == 0 else bytes([number % 256]) * (number % 50),
            partition=number % partitions,
            timestamp=NOON + number % days * DAY_MS + number,
            headers=[("a", b"\x00\xff"), ("a", None), ("é", b"")] if number % 3 == 0 else None,
        )
    writer.flush()


def transactions(broker: ThreadBroker, topic: str) -> None:
    """One that is committed, one that is given up, one that is committed again."""
    producer = Producer(
        {"bootstrap.servers": broker.kafka, "log_level": 0, "transactional.id": "archive-test"}
    )
    producer.init_transactions()
    for number, commit in enumerate((True, False, True)):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(topic, b"transaction %d" % number, partition=partition, timestamp=NOON)
        producer.flush()
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
