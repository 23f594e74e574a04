"""RocketMQ's client for the remoting protocol in Go: what it sends and consumes, alone and beside others."""

import os
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from posthouse.client import Client
from posthouse.settings import Address
from posthouse.testing import ThreadBroker
from tests.clients.rocketmq.go_programs import built
from tests.clients.rocketmq.logins import BrokerWithLogins
from tests.clients.rocketmq.other_protocols import (
    INBOX,
    AmqpQueue,
    consumed,
    fill_inbox,
    headers,
    prepare_replay,
)

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(not os.environ.get("POSTHOUSE_JAVA"), reason="builds for a minute: make test-java"),
]

SENDING = ("normal", "ordered", "delayed", "transactions", "takeover", "requests")
CONSUMING = ("filters", "broadcasting", "pulls", "retries")

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(Path(__file__).parent / "go", tmp_path_factory.mktemp("go") / "client")


def start(
    program: Path, home: Path, broker: ThreadBroker, *steps: str, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Broadcasting consumers have their offsets below the home directory."""
    return subprocess.run(
        [str(program), broker.address("rocketmq"), *steps],
        env=os.environ | {"HOME": str(home)} | environment,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


@pytest.fixture
def run(program: Path, tmp_path: Path) -> Run:
    return partial(start, program, tmp_path)


def lines(done: "subprocess.CompletedProcess[str]") -> list[str]:
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(done.stdout.splitlines())


def test_what_the_client_does(run: Run, broker: ThreadBroker) -> None:
    crashed = run(broker, "crash")
    assert crashed.returncode == 7, crashed.stdout + crashed.stderr
    steps = (*SENDING, *CONSUMING, f"replay:{prepare_replay(broker)}:5")
    assert lines(run(broker, *steps)) == sorted(f"done {step}" for step in steps)
    with Client(broker.kafka) as client:
        partitions = {each.name: each.partitions for each in client.topics()}
    assert partitions["normal"] == 4  # as many as this client wants


def test_other_protocols(run: Run, broker: ThreadBroker) -> None:
    fill_inbox(broker)
    with AmqpQueue(broker, "shop") as queue:
        assert lines(run(broker, "write:shop", "read:inbox:3")) == sorted(
            [*INBOX, "done write:shop", "done read:inbox:3"]
        )
        found = queue.take(3)
    records = {each.key(): each for each in consumed(broker, "shop", 3)}
    for number in range(3):
        body, properties = found[f"key{number}"]
        assert body == f"straße {number}".encode()
        assert (properties["TAGS"], properties["tenant"]) == (f"tag{number}", "blåu")
        record = records[b"key%d" % number]
        assert record.value() == body
        assert headers(record)["TAGS"] == b"tag%d" % number
        assert headers(record)["tenant"] == "blåu".encode()


def test_logins(run: Run, tmp_path: Path) -> None:
    with BrokerWithLogins(tmp_path, rocketmq=Address("127.0.0.1", 0)) as broker:
        key, secret = broker.access_key()
        unknown = "the topic=refused route info not found"  # all that this client says of a login
        assert lines(run(broker, "refused")) == ["done refused", unknown]
        assert lines(run(broker, "refused", ACCESS_KEY=key, SECRET="wrong")) == ["done refused", unknown]
        assert lines(run(broker, "refused", ACCESS_KEY=key, SECRET=secret)) == [
            "CODE: 16, DESC: no permission to write to topic 'refused'",
            "done refused",
        ]
        broker.allow("topic", "normal", "transactions")
        broker.allow("group", "normal", "transactions")
        done = run(broker, "normal", "transactions", ACCESS_KEY=key, SECRET=secret)
        assert lines(done) == ["done normal", "done transactions"]
