"""RocketMQ's own `mqadmin`, with a consumer and a producer beside it."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from posthouse.client import Client
from posthouse.listener_settings import Address
from posthouse.testing import ThreadBroker, running_broker
from tests.clients.rocketmq.steered_consumer import SteeredConsumer
from tests.java import jars
from tests.java.conftest import Program

pytestmark = [pytest.mark.xdist_group("java"), pytest.mark.timeout(300)]

SECONDS = 90.0
"""For a consumer. Only a failure takes so long."""

Run = Callable[..., str]


@pytest.fixture
def broker() -> Iterator[ThreadBroker]:
    any_port = Address("127.0.0.1", 0)
    with running_broker(rocketmq=any_port, rocketmq_grpc=any_port) as running:
        yield running


@pytest.fixture
def address(broker: ThreadBroker) -> str:
    return broker.address("rocketmq")


@pytest.fixture
def program(start: Program, tmp_path: Path) -> "subprocess.Popen[str]":
    if not os.environ.get("POSTHOUSE_JAVA"):
        pytest.skip("takes a minute and fetches 60 MB: make test-java")
    try:
        tools = jars.fetched("rocketmq-tools", jars.ROCKETMQ_TOOLS)
    except jars.Unavailable as error:
        pytest.skip(f"RocketMQ's tools: {error}")
    return start(tools, "Admin.java", str(tmp_path / "home"))


@pytest.fixture
def mqadmin(program: "subprocess.Popen[str]", address: str, tmp_path: Path) -> Run:
    def run(command: str, *options: str) -> str:
        """What the command prints; what it fails with is printed as an error, and is here, too."""
        assert program.stdin is not None
        assert program.stdout is not None
        errors = tmp_path / "stderr-0"
        before = errors.stat().st_size
        where = [address] if command in ("consume", "produce") else ["-n", address]
        program.stdin.write(" ".join([command, *where, *options]) + "\n")
        program.stdin.flush()
        printed = []
        for line in program.stdout:
            if line == "done\n":
                break
            printed.append(line)
        return "".join(printed).rstrip() + "\n" + errors.read_bytes()[before:].decode()

    return run


def test_topics(mqadmin: Run, address: str) -> None:
    created = mqadmin("updateTopic", "-c", "posthouse", "-t", "orders", "-r", "4", "-w", "4")
    assert f"create topic to {address} success" in created
    assert "cannot have only 2" in mqadmin("updateTopic", "-b", address, "-t", "orders", "-r", "2", "-w", "2")
    assert mqadmin("topicList").split() == ["orders"]
    route = mqadmin("topicRoute", "-t", "orders")
    assert f'"{address}"' in route
    assert '"writeQueueNums":4' in route
    assert "SEND_OK" in mqadmin("sendMessage", "-t", "orders", "-p", "paid", "-k", "4711", "-c", "red")
    queues = [line.split() for line in mqadmin("topicStatus", "-t", "orders").splitlines()]
    ends = [words[3] for words in queues if words[:1] == ["posthouse"]]
    assert sorted(ends) == ["0", "0", "0", "1"]
    assert "BODY: paid" in mqadmin("consumeMessage", "-t", "orders")
    deleted = mqadmin("deleteTopic", "-c", "posthouse", "-t", "orders")
    assert "delete topic [orders] from NameServer success" in deleted
    assert mqadmin("topicList").split() == []


def test_the_broker(mqadmin: Run, address: str) -> None:
    shown = mqadmin("clusterList").splitlines()[1]
    assert shown.split()[:6] == ["posthouse", "posthouse", "0", address, "Posthouse", "0.1.0"]
    assert shown.split()[-1] == "true"
    state = mqadmin("brokerStatus", "-b", address)
    assert "brokerActive                    : true" in state
    assert "maxMessageSize" in mqadmin("getBrokerConfig", "-b", address)
    refused = mqadmin("updateBrokerConfig", "-b", address, "-k", "maxMessageSize", "-v", "1")
    assert "use posthouse config" in refused


def test_groups(mqadmin: Run, address: str, tmp_path: Path) -> None:
    mqadmin("updateTopic", "-c", "posthouse", "-t", "orders", "-r", "1", "-w", "1")
    assert "success" in mqadmin("updateSubGroup", "-c", "posthouse", "-g", "billing")
    assert "retryMaxTimes=3" in mqadmin("updateSubGroup", "-b", address, "-g", "billing", "-r", "3")
    assert "no client consumes" in mqadmin("consumerConnection", "-g", "billing")
    mqadmin("produce", "shop", "orders")
    mqadmin("consume", "billing", "orders")
    wait_for(tmp_path / "stderr-0", "got paid", 1)
    connections = mqadmin("consumerConnection", "-g", "billing")
    assert "@consuming" in connections
    assert "CONSUME_PASSIVELY" in connections
    assert "billing" in mqadmin("consumerProgress")
    deadline = time.monotonic() + SECONDS
    while "Consume Diff Total: 0" not in mqadmin("consumerProgress", "-g", "billing"):
        assert time.monotonic() < deadline
    while "JAVA" not in mqadmin("producerConnection", "-g", "shop", "-t", "orders"):
        assert time.monotonic() < deadline  # a producer that has just met the broker says so within 30 s
    reset = mqadmin("resetOffsetByTime", "-g", "billing", "-t", "orders", "-s", "0")
    assert ["posthouse", "0", "0"] in [line.split() for line in reset.splitlines()]
    wait_for(tmp_path / "stderr-0", "got paid", 2)
    assert "1 clients consume" in mqadmin("deleteSubGroup", "-c", "posthouse", "-g", "billing")


def test_priorities(mqadmin: Run, address: str) -> None:
    topic = ("updateTopic", "-b", address, "-t", "orders", "-r", "4", "-w", "4", "-a")
    assert f"create topic to {address} success" in mqadmin(*topic, "+message.type=PRIORITY")
    assert "lite topics are not supported" in mqadmin(*topic, "+message.type=LITE")
    group = ("updateSubGroup", "-b", address, "-g", "billing", "--attributes")
    assert "success" in mqadmin(*group, "+priority.factor=90")
    assert "between 0 and 100" in mqadmin(*group, "+priority.factor=101")


def test_a_group_is_deleted(mqadmin: Run) -> None:
    assert "success" in mqadmin("updateSubGroup", "-c", "posthouse", "-g", "billing")
    assert mqadmin("topicList").split() == ["%RETRY%billing"]
    deleted = mqadmin("deleteSubGroup", "-c", "posthouse", "-g", "billing", "-r", "true")
    assert "delete subscription group [billing]" in deleted
    assert "Exception" not in deleted
    assert mqadmin("topicList").split() == []


def test_a_group_of_grpc_consumers(mqadmin: Run, broker: ThreadBroker, tmp_path: Path) -> None:
    mqadmin("updateTopic", "-c", "posthouse", "-t", "orders", "-r", "1", "-w", "1")
    with Client(broker.kafka) as client, client.producer("orders") as producer:
        for value in (b"one", b"two", b"three"):
            producer.send(value)
    consumer = SteeredConsumer(broker.address("rocketmq_grpc"), tmp_path / "python", "orders", "billing")
    try:
        assert (consumer.ask("receive"), consumer.ask("ack 0")) == ("one", "acknowledged")
        assert consumer.ask("receive") == "two"
        connections = mqadmin("consumerConnection", "-g", "billing")
        assert ("PYTHON" in connections, "V5_" in connections) == (True, True), connections
        shown = mqadmin("consumerProgress", "-g", "billing")
        assert ("Consume Diff Total: 2" in shown, "Consume Inflight Total: 1" in shown) == (True, True), shown
        assert "1 clients consume" in mqadmin("deleteSubGroup", "-c", "posthouse", "-g", "billing")
        reset = mqadmin("resetOffsetByTime", "-g", "billing", "-t", "orders", "-s", "0")
        assert ["posthouse", "0", "0"] in [line.split() for line in reset.splitlines()]
        assert consumer.ask("ack 1").startswith("refused")
        assert consumer.ask("receive") == "one"
        assert "Consume Diff Total: 3" in mqadmin("consumerProgress", "-g", "billing")
        consumer.end()
    finally:
        consumer.kill()
    deleted = mqadmin("deleteSubGroup", "-c", "posthouse", "-g", "billing", "-r", "true")
    assert "delete subscription group [billing]" in deleted
    assert "no client consumes" in mqadmin("consumerConnection", "-g", "billing")


def wait_for(file: Path, line: str, times: int) -> None:
    deadline = time.monotonic() + SECONDS
    while file.read_text().splitlines().count(line) < times:
        assert time.monotonic() < deadline, file.read_text()
        time.sleep(0.05)
