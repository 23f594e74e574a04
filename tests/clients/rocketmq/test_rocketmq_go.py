"""RocketMQ's client in Go: it sends, and consumes what others have sent."""

import os
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer

from posthouse.client import Client
from posthouse.testing import ThreadBroker
from tests.clients.rocketmq.go_programs import built

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(not os.environ.get("POSTHOUSE_JAVA"), reason="builds for a minute: make test-java"),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(Path(__file__).parent / "go", tmp_path_factory.mktemp("go") / "client")


def run(program: Path, broker: ThreadBroker, *arguments: str) -> list[str]:
    command = [str(program), broker.address("rocketmq"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


def test_send_and_receive(program: Path, broker: ThreadBroker) -> None:
    run(program, broker, "send", "orders", "20")
    with Client(broker.kafka) as client:
        [topic] = [each for each in client.topics() if each.name == "orders"]
    assert topic.partitions == 4
    producer = Producer({"bootstrap.servers": broker.kafka})
    producer.produce("orders", "kafka 0", "key", headers={"tenant": "röt", "TAGS": "kafka"})
    assert producer.flush(30) == 0
    assert run(program, broker, "receive", "orders", "21") == sorted(
        ["kafka 0 key kafka röt", *(f"go {number} key{number} go blåu" for number in range(20))]
    )
