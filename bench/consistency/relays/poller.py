"""A relay as a careful engineer writes it: rows are locked, sent, and deleted when the broker has them.

`python -m bench.consistency.relays.poller DATABASE BOOTSTRAP TOPIC`. It keeps the order of a key only while
it is alone, and a crash between the last two steps sends a batch again.
"""

import sys
import time
from typing import Final

import psycopg
from confluent_kafka import KafkaException, Producer

_BATCH: Final = 500
_IDLE_SECONDS: Final = 0.05
_LOCKED: Final = "SELECT id, key, value FROM outbox ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED"


def main(database: str, bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0})
    with psycopg.connect(database) as connection:
        while True:
            if not _sent(connection, producer, topic):
                time.sleep(_IDLE_SECONDS)


def _sent(connection: "psycopg.Connection[tuple[int, bytes, bytes]]", producer: Producer, topic: str) -> int:
    with connection.transaction():
        rows = connection.execute(_LOCKED, [_BATCH]).fetchall()
        if not rows:
            return 0
        failed: list[object] = []

        def note(error: object, _: object) -> None:
            if error is not None:
                failed.append(error)

        for _, key, value in rows:
            producer.produce(topic, value, key=key, on_delivery=note)
        if producer.flush(60) or failed:
            raise KafkaException(f"not delivered: {failed[:1]}")
        connection.execute("DELETE FROM outbox WHERE id = ANY(%s)", [[row for row, _, _ in rows]])
    return len(rows)


main(*sys.argv[1:])
