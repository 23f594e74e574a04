"""What stock gRPC clients of every language do, each in a program of its own: the same steps, topics and
groups.

A program is called with the address of the broker, `tls` or `plain`, and names of steps. All steps run at
once, because they wait most of the time. It prints `done STEP` for each. `crash` sends a half message and
exits with 7; another process with the step `takeover` is asked for it.
"""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition

from posthouse.client import Client
from posthouse.settings import Address
from posthouse.testing import ThreadBroker
from tests.certificates import Authority

QUICK = ("exchange", "ordered", "delayed", "transactions", "takeover", "filters", "redelivery", "inbox")
STEPS = (*QUICK, "retries")
"""All of them. A retry waits 10 s, and a message 30 s more until it is a dead letter."""
PRIORITIES = "priorities"
"""A step of those whose clients have them."""

thorough = pytest.mark.skipif(not os.environ.get("POSTHOUSE_JAVA"), reason="takes a minute: make test-java")

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def grpc_broker(directory: Path, *, has_tls: bool) -> ThreadBroker:
    """With TLS it serves clients without it, too."""
    settings = {"data": directory / "data", "rocketmq_grpc": Address("127.0.0.1", 0)}
    if has_tls:
        identity = Authority(directory).issue()
        settings |= {"tls_certificate": identity.certificate, "tls_key": identity.key}
    return ThreadBroker(**settings)  # type: ignore[arg-type]


def run_program(
    command: list[str], *steps: str, home: Path, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Its logs go to the home directory."""
    home.mkdir(exist_ok=True)
    return subprocess.run(
        [*command, *steps],
        env=os.environ | {"HOME": str(home)} | environment,
        cwd=home,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def check_steps(broker: ThreadBroker, run: Run, steps: tuple[str, ...] = STEPS) -> None:
    with Client(broker.kafka) as client:
        client.change_group("ordered", settings={"rocketmq.fifo.enable": "true"})
        client.change_group("retries", settings={"share.delivery.count.limit": "2"})
    producer = Producer({"bootstrap.servers": broker.kafka})
    producer.produce("inbox", "grüße von Kafka", "from.kafka", headers={"tenant": "röt", "TAGS": "red"})
    producer.produce("inbox", "ohne alles")
    assert producer.flush(30) == 0

    crashed = run("crash")
    assert crashed.returncode == 7, crashed.stdout + crashed.stderr
    done = run(*steps)
    assert done.returncode == 0, done.stdout + done.stderr
    printed = [line for line in done.stdout.splitlines() if line.startswith("done ")]
    assert sorted(printed) == sorted(f"done {step}" for step in steps)

    records = consumed(broker, "exchange", 10)
    assert sorted(each.value() or b"" for each in records) == [b"message %d" % each for each in range(10)]
    for each in records:
        number = (each.value() or b"")[-1:]
        headers = dict(each.headers() or [])
        assert each.key() == b"key" + number
        assert (headers["TAGS"], headers["tenant"]) == (
            b"odd" if int(number) % 2 else b"even",
            "blåu".encode(),
        )
    if "retries" in steps:
        [dead] = consumed(broker, ".DLQ.retries", 1)
        assert dead.value() == b"bad"


def consumed(broker: ThreadBroker, topic: str, count: int) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": broker.kafka, "group.id": "unused"})
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in partitions])
    found: list[Message] = []
    while len(found) < count:
        message = consumer.poll(60)
        assert message is not None, f"{len(found)} of {count} records came"
        assert message.error() is None, message.error()
        found.append(message)
    consumer.close()
    return found
