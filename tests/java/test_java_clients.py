"""Kafka's own Java clients: admin, producer, consumers of all three kinds, transactions.

One JVM does it all, because a JVM costs more than what it does here.
"""

import json
import subprocess
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from posthouse.testing import running_broker
from tests.java.conftest import Program

pytestmark = [pytest.mark.xdist_group("java"), pytest.mark.timeout(240)]

DOES = ("admin", "features", "settings", "tokens", "metrics", "classic", "consumer", "transactions", "share")


def test_what_java_clients_do(java_clients: Path, start: Program, tmp_path: Path) -> None:
    pushed = tmp_path / "metrics.jsonl"
    with running_broker(data=tmp_path / "data", client_metrics=pushed) as broker:
        program = start(java_clients, "Clients.java", broker.kafka, *DOES)
        assert program.stdin is not None
        assert program.stdout is not None
        lines = list(until("instance", program.stdout))
        instance = lines.pop().split()[-1]
        measured = wait_for_push(pushed, program)
        program.stdin.write("go on")
        printed, _ = program.communicate(timeout=120)
        assert program.returncode == 0, printed + (tmp_path / "stderr-0").read_text()
    assert [*lines, *printed.splitlines()] == [f"done {name}" for name in DOES]
    assert kafka_id(measured["client_instance_id"]) == instance
    assert measured["client_software_name"] == "apache-kafka-java"
    names = {point["name"] for point in measured["metrics"]}
    assert any(name.startswith("org.apache.kafka.producer.") for name in names)


def until(word: str, lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield line.strip()
        if line.startswith(word):
            return


def wait_for_push(file: Path, program: "subprocess.Popen[str]") -> dict[str, Any]:
    """The first that the producer of that name made."""
    deadline = time.monotonic() + 60
    while True:
        for line in file.read_text().splitlines(keepends=True):
            if line.endswith("\n") and json.loads(line)["client_id"] == "measured":
                found: dict[str, Any] = json.loads(line)
                return found
        assert time.monotonic() < deadline
        assert program.poll() is None
        time.sleep(0.05)


def kafka_id(text: str) -> str:
    """Kafka writes ids in base 64."""
    return urlsafe_b64encode(UUID(text).bytes).decode().rstrip("=")
