"""Consumers of several libraries, with a rack or without, that read all partitions of a topic."""

import asyncio
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import kafka
from aiokafka import AIOKafkaConsumer, TopicPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer
from confluent_kafka import TopicPartition as Start

from tests.java import jars

PARTITIONS = 24
PATIENCE_SECONDS = 90.0
_POLL_SECONDS = 0.2
_METADATA_MS = 5000
"""So often most clients ask the leader again where to read, too."""


class RackReader(Protocol):
    def poll(self) -> Sequence[bytes]: ...

    def close(self) -> None: ...


def read(reader: RackReader, count: int) -> list[bytes]:
    """The next records, and no more."""
    found: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(found) < count:
        assert time.monotonic() < deadline, f"{type(reader).__name__} has read {len(found)} of {count}"
        found += reader.poll()
    assert len(found) == count
    return found


class Librdkafka:
    def __init__(self, bootstrap: str, topic: str, rack: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "none",
                "enable.auto.commit": False,
                "client.rack": rack,
                "topic.metadata.refresh.interval.ms": _METADATA_MS,
            }
        )
        self._consumer.assign([Start(topic, each, OFFSET_BEGINNING) for each in range(PARTITIONS)])

    def poll(self) -> Sequence[bytes]:
        message = self._consumer.poll(_POLL_SECONDS)
        return [] if message is None or message.error() else [message.value() or b""]

    def close(self) -> None:
        self._consumer.close()


class KafkaPython:
    def __init__(self, bootstrap: str, topic: str, rack: str) -> None:
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap.split(","),
            auto_offset_reset="earliest",
            client_rack=rack,
            metadata_max_age_ms=_METADATA_MS,
        )
        self._consumer.assign([kafka.TopicPartition(topic, each) for each in range(PARTITIONS)])

    def poll(self) -> Sequence[bytes]:
        found = self._consumer.poll(timeout_ms=round(_POLL_SECONDS * 1000))
        return [each.value for records in found.values() for each in records]

    def close(self) -> None:
        self._consumer.close()


class Aiokafka:
    def __init__(self, bootstrap: str, topic: str, rack: str) -> None:
        self._runner = asyncio.Runner()
        self._consumer = self._runner.run(self._started(bootstrap, topic, rack))

    async def _started(self, bootstrap: str, topic: str, rack: str) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            client_rack=rack or None,
            metadata_max_age_ms=_METADATA_MS,
        )
        await consumer.start()
        consumer.assign([TopicPartition(topic, each) for each in range(PARTITIONS)])
        return consumer

    def poll(self) -> Sequence[bytes]:
        found = self._runner.run(self._consumer.getmany(timeout_ms=round(_POLL_SECONDS * 1000)))
        return [each.value or b"" for records in found.values() for each in records]

    def close(self) -> None:
        self._runner.run(self._consumer.stop())
        self._runner.close()


class Java:
    """Kafka's own consumer, in a JVM of its own."""

    def __init__(self, bootstrap: str, topic: str, rack: str, *, libraries: Path, errors: Path) -> None:
        program = Path(__file__).with_name("RackReader.java")
        command = jars.java(
            jars.compiled(program, libraries), program.stem, bootstrap, topic, str(PARTITIONS), rack
        )
        with errors.open("w") as file:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True
            )

    def poll(self) -> Sequence[bytes]:
        """The program says something after each poll of its own."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the JVM has ended with {self._process.wait(PATIENCE_SECONDS)}"
        return [each.encode() for each in line.split()]

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
