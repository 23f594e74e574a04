"""Stock Java clients of RocketMQ, of 4.x and of 5.x: what they send and consume, alone and beside other
protocols.

One JVM does many steps at once, because they wait most of the time. `make test` runs the first test with the
newer clients; the rest is for `make test-java`.
"""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from posthouse.settings import Address
from posthouse.testing.thread_broker import ThreadBroker
from tests.java.conftest import Program

pytestmark = [pytest.mark.xdist_group("java"), pytest.mark.timeout(240)]

ANY_PORT = Address("127.0.0.1", 0)
HOUR_MS = 3_600_000
SENDING = ("normal", "ordered", "delayed", "large", "transactions", "takeover")
CONSUMING = ("filters", "broadcasting", "lite", "retries", "subscriptions", "trace", "namespaces")

thorough = pytest.mark.skipif(not os.environ.get("POSTHOUSE_JAVA"), reason="takes a minute: make test-java")


@pytest.fixture(params=["4.9.8", "5.5.0"])
def rocketmq(request: pytest.FixtureRequest) -> Path:
    version: str = request.param
    found: Path = request.getfixturevalue(f"rocketmq_{version[0]}")
    return found


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ThreadBroker]:
    with ThreadBroker(data=tmp_path / "data", rocketmq=ANY_PORT) as running:
        yield running


def finish(program: "subprocess.Popen[str]", errors: Path, more: str | None = None) -> list[str]:
    """What it prints until it ends well."""
    printed, _ = program.communicate(more, timeout=200)
    assert program.returncode == 0, printed + errors.read_text()
    return printed.splitlines()


def prepare_replay(broker: ThreadBroker) -> int:
    """Ten records, one an hour, of which the first is gone. The time of record 5."""
    admin = AdminClient({"bootstrap.servers": broker.kafka})
    admin.create_topics([NewTopic("replay", 1)])["replay"].result(30)
    first = (int(time.time()) - 20 * 3600) * 1000
    producer = Producer({"bootstrap.servers": broker.kafka})
    for number in range(10):
        producer.produce("replay", str(number), partition=0, timestamp=first + number * HOUR_MS)
    assert producer.flush(30) == 0
    gone = TopicPartition("replay", 0, 1)
    admin.delete_records([gone])[gone].result(30)
    return first + 5 * HOUR_MS


def test_what_clients_do(rocketmq: Path, broker: ThreadBroker, start: Program, tmp_path: Path) -> None:
    address = broker.address("rocketmq")
    crashed = start(rocketmq, "rocketmq/Steps.java", address, "crash")
    replay = f"replay:{prepare_replay(broker)}:5"
    printed, _ = crashed.communicate(timeout=100)
    assert crashed.returncode == 7, printed + (tmp_path / "stderr-0").read_text()
    steps = [*SENDING, *CONSUMING, replay]
    program = start(rocketmq, "rocketmq/Steps.java", address, *steps)
    assert sorted(finish(program, tmp_path / "stderr-1")) == sorted(f"done {step}" for step in steps)
    assert consumed(broker, "large", 3)[b"repeated"].value() == b"0123456789" * 50_000


def consumed(broker: ThreadBroker, topic: str, count: int) -> dict[bytes, Message]:
    """Records of a topic by their tags."""
    consumer = Consumer({"bootstrap.servers": broker.kafka, "group.id": "unused"})
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in partitions])
    found: dict[bytes, Message] = {}
    for _ in range(count):
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None, message.error()
        found[headers(message)["TAGS"]] = message
    consumer.close()
    return found


def headers(message: Message) -> dict[str, Any]:
    return dict(message.headers() or [])


@thorough
def test_other_protocols(rocketmq: Path, broker: ThreadBroker, start: Program, tmp_path: Path) -> None:
    host, _, port = broker.amqp.rpartition(":")
    connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))
    channel = connection.channel()
    channel.exchange_declare("shop", "topic", durable=True)
    channel.queue_declare("everything", durable=True)
    channel.queue_bind("everything", "shop", "#")
    channel.exchange_declare("inbox", "fanout", durable=True)
    sent = pika.BasicProperties(headers={"tenant": "blåu"}, content_type="text/plain")
    channel.basic_publish("inbox", "from.amqp", "grüße von AMQP".encode(), sent)
    producer = Producer({"bootstrap.servers": broker.kafka})
    producer.produce("inbox", "grüße von Kafka", "from.kafka", headers={"tenant": "röt", "TAGS": "red"})
    producer.produce("inbox", "ohne alles")
    assert producer.flush(30) == 0

    program = start(rocketmq, "rocketmq/Steps.java", broker.address("rocketmq"), "write:shop", "read:inbox:3")
    assert sorted(finish(program, tmp_path / "stderr-0")) == [
        "done read:inbox:3",
        "done write:shop",
        "grüße von AMQP {KEYS=from.amqp, tenant=blåu}",
        "grüße von Kafka {KEYS=from.kafka, TAGS=red, tenant=röt}",
        "ohne alles {}",
    ]

    bodies = ["straße 0 ", "straße 1 ", "straße 2 " * 1000]
    records = consumed(broker, "shop", 3)
    assert [
        (records[b"tag%d" % number].key(), records[b"tag%d" % number].value()) for number in range(3)
    ] == [(b"key%d" % number, body.encode()) for number, body in enumerate(bodies)]
    assert all(headers(each)["tenant"].decode() == "blåu" for each in records.values())
    found: dict[str, str] = {}
    for method, properties, body in channel.consume("everything", inactivity_timeout=30):
        assert method is not None, f"only {len(found)} messages came"
        found[method.routing_key] = body.decode()
        assert properties.headers["tenant"] == "blåu"
        assert properties.headers["TAGS"] == method.routing_key.replace("key", "tag")
        channel.basic_ack(method.delivery_tag)
        if len(found) == 3:
            break
    assert found == {f"key{number}": body for number, body in enumerate(bodies)}
    connection.close()


@thorough
def test_the_broker_is_restarted(rocketmq: Path, start: Program, tmp_path: Path) -> None:
    """Everything that was accepted is consumed, also in order, by clients that were there all the time."""
    with ThreadBroker(data=tmp_path / "data", rocketmq=ANY_PORT) as broker:
        address = broker.address("rocketmq")
        program = start(rocketmq, "rocketmq/Steps.java", address, "restart")
        assert program.stdout is not None
        line = program.stdout.readline()
        assert line == "going\n", line + (tmp_path / "stderr-0").read_text()
    with ThreadBroker(data=tmp_path / "data", rocketmq=Address.parse(address)):
        accepted, done = finish(program, tmp_path / "stderr-0", "restarted")
        assert done == "done restart"
        assert int(accepted.split()[1]) > 20
