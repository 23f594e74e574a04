"""A real Kafka, from Maven's jars: one node with KRaft, small."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.java import jars
from tests.postgres import free_port

_ARTIFACTS = (f"org.apache.kafka:kafka_2.13:{jars.KAFKA_VERSION}",)
_DEADLINE = 90.0


def need_kafka() -> Path:
    """The jars."""
    if not os.environ.get("POSTHOUSE_JAVA"):
        pytest.skip("a real Kafka fetches 100 MB: make test-java")
    try:
        return jars.fetched("server", _ARTIFACTS)
    except jars.Unavailable as error:
        pytest.skip(f"no real Kafka: {error}")


@contextmanager
def running_kafka(place: Path, libraries: Path) -> Iterator[str]:
    """Its address."""
    client, controller = free_port(), free_port()
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": place / "data",
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 4,
    }
    file = place / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    path = f"{libraries}/*"
    format = ["format", "-t", "AAAAAAAAQACAAAAAAAAAAA", "-c", str(file)]
    subprocess.run(jars.java(path, "kafka.tools.StorageTool", *format), check=True, capture_output=True)
    with (place / "output").open("w") as output:
        process = subprocess.Popen(
            jars.java(path, "kafka.Kafka", str(file)), stdout=output, stderr=output, cwd=place
        )
    try:
        _wait(f"127.0.0.1:{client}", process)
        yield f"127.0.0.1:{client}"
    finally:
        process.kill()
        process.wait()


def _wait(address: str, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + _DEADLINE
    admin = AdminClient({"bootstrap.servers": address})
    while True:
        try:
            admin.list_topics(timeout=5)
            return
        except KafkaException:
            assert process.poll() is None and time.monotonic() < deadline, "Kafka does not start"
