"""RocketMQ's client in C++, as the package `rocketmq` on PyPI has it: it sends, one by one and in batches."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from posthouse.testing import ThreadBroker

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(not os.environ.get("POSTHOUSE_JAVA"), reason="fetches a wheel: make test-java"),
]

VERSION = "0.4.4"
PROGRAM = """\
import sys
from rocketmq.client import Message, Producer

def message(text):
    made = Message("orders")
    made.set_keys("key of " + text[:20])
    made.set_tags("cpp")
    made.set_property("tenant", "blue")
    made.set_body(text)
    return made

producer = Producer("cpp")
producer.set_namesrv_addr(sys.argv[1])
producer.start()
for number in range(10):
    result = producer.send_sync(message(f"one {number}"))
    assert result.status == 0, result
result = producer.send_batch([message(f"batch {number}") for number in range(10)])
assert result.status == 0, result
producer.send_oneway(message("oneway"))
result = producer.send_sync(message("long " * 10_000))  # the client compresses it
assert result.status == 0, result
producer.shutdown()
"""


@pytest.fixture(scope="module")
def package() -> Path:
    """The directory where it is installed: away from others, which it does not need."""
    directory = Path(sys.prefix) / "rocketmq" / VERSION
    if not (directory / "complete").exists():
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
        ]
        command += ["--upgrade", "--target", str(directory), f"rocketmq=={VERSION}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        if done.returncode != 0:
            pytest.skip(f"pip could not install rocketmq {VERSION}: {done.stderr.strip()[-300:]}")
        (directory / "complete").touch()
    return directory


def test_send(package: Path, broker: ThreadBroker, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, broker.address("rocketmq")],
        env=os.environ | {"PYTHONPATH": str(package), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    wanted = {f"{kind} {number}" for kind in ("one", "batch") for number in range(10)}
    wanted |= {"oneway", "long " * 10_000}
    consumer = Consumer({"bootstrap.servers": broker.kafka, "group.id": "unused"})
    partitions = consumer.list_topics("orders", timeout=30).topics["orders"].partitions
    consumer.assign([TopicPartition("orders", each, OFFSET_BEGINNING) for each in partitions])
    for _ in range(len(wanted)):
        message = consumer.poll(30)
        assert message is not None, f"{len(wanted)} have not come"
        assert message.error() is None, message.error()
        value, key = message.value(), message.key()
        assert value is not None
        assert isinstance(key, bytes)
        wanted.remove(value.decode())
        assert key.decode() == f"key of {value.decode()[:20]}"
        headers = dict(message.headers() or [])
        assert (headers["TAGS"], headers["tenant"]) == (b"cpp", b"blue")
    consumer.close()
