"""`posthouse group` and HTTP beside a consumer that runs, RocketMQ's stock client in Python."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from posthouse.client import Client
from posthouse.testing import ThreadBroker
from tests.cli.programs import inside, one_sentence
from tests.clients.rocketmq.grpc_steps import grpc_broker
from tests.clients.rocketmq.steered_consumer import SteeredConsumer

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ThreadBroker]:
    with grpc_broker(tmp_path, has_tls=False) as running:
        with Client(running.kafka) as client:
            client.create_topic("orders", partitions=1)
            with client.producer("orders") as producer:
                for number in range(3):
                    producer.send(b"%d" % number)
        yield running


@pytest.fixture
def consumer(broker: ThreadBroker, tmp_path: Path) -> Iterator[SteeredConsumer]:
    """It holds the second of three messages, and has acknowledged the first."""
    started = SteeredConsumer(broker.address("rocketmq_grpc"), tmp_path / "home", "orders", "billing")
    try:
        assert started.ask("receive") == "0"
        assert started.ask("ack 0") == "acknowledged"
        assert started.ask("receive") == "1"
        yield started
    finally:
        started.kill()


def group(broker: ThreadBroker, *arguments: str) -> Any:
    done = inside("group", *arguments, "--json", bootstrap=broker.kafka)
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def test_it_is_shown_moved_and_deleted(broker: ThreadBroker, consumer: SteeredConsumer) -> None:
    [listed] = group(broker, "list", "--lag")
    assert (listed["group"], listed["protocol"], listed["state"]) == ("billing", "share", "Stable")
    assert (listed["members"], listed["lag"]) == (1, 2)
    described = group(broker, "describe", "billing")
    [member] = described["members"]
    assert (member["host"], member["client"]) == ("127.0.0.1", member["member"])
    assert member["partitions"] == [{"topic": "orders", "partition": 0}]
    [offset] = described["offsets"]
    assert (offset["committed"], offset["end"], offset["lag"], offset["member"]) == (1, 3, 2, None)
    shown = httpx.get(f"http://{broker.address('admin')}/v1/groups/billing").json()
    assert (shown["state"], shown["members"][0]["id"], shown["lag"]) == ("stable", member["member"], 2)

    refused = inside("group", "delete", "billing", bootstrap=broker.kafka)
    assert one_sentence(refused, 1).endswith("has active members; stop its consumers and try again")
    tried = group(broker, "reset", "billing", "--to", "earliest", "--dry-run")
    assert tried["offsets"] == [{"topic": "orders", "partition": 0, "old": 1, "new": 0}]
    assert group(broker, "reset", "billing", "--to", "earliest")["dry_run"] is False
    assert consumer.ask("ack 1").startswith("refused"), "it was received before the reset"
    assert [consumer.ask("receive") for _ in range(3)] == ["0", "1", "2"]
    assert group(broker, "list", "--lag")[0]["lag"] == 3, "the late acknowledgement has changed nothing"
    assert [consumer.ask(f"ack {number}") for number in (2, 3, 4)] == ["acknowledged"] * 3
    assert group(broker, "list", "--lag")[0]["lag"] == 0

    consumer.end()
    [listed] = group(broker, "list")
    assert (listed["state"], listed["members"]) == ("Empty", 0)
    assert inside("group", "delete", "billing", bootstrap=broker.kafka).returncode == 0
    assert group(broker, "list") == []
