"""RocketMQ's client in Go: it sends, and consumes what others have sent."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from posthouse.client import Client
from posthouse.testing import ThreadBroker

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(not os.environ.get("POSTHOUSE_JAVA"), reason="builds for a minute: make test-java"),
]

HERE = Path(__file__).parent / "go"
_BUILD_SECONDS = 240


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built beside the Python packages; Go's caches are there, too."""
    if shutil.which("go") is None:
        pytest.skip("there is no go on this machine")
    built = tmp_path_factory.mktemp("go") / "client"
    caches = Path(sys.prefix) / "go"
    environment = os.environ | {
        "GOPATH": str(caches / "path"),
        "GOCACHE": str(caches / "cache"),
        "GOFLAGS": "",
    }
    command = ["go", "build", "-modcacherw", "-o", str(built), "."]
    try:
        done = subprocess.run(
            command,
            cwd=HERE,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_BUILD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"Go did not fetch and build RocketMQ's client in {_BUILD_SECONDS} s")
    if "dial tcp" in done.stderr or "reading https" in done.stderr:
        pytest.skip(f"Go cannot fetch RocketMQ's client: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    return built


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
