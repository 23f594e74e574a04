"""Stock Java clients of RocketMQ, of 4.x and of 5.x: what they send and consume, alone and beside other
protocols.

One JVM does many steps at once, because they wait most of the time. `make test` runs the first test with the
newer clients; the rest is for `make test-java`.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from posthouse.settings import Address
from posthouse.testing.thread_broker import ThreadBroker
from tests.certificates import Authority
from tests.clients.rocketmq.logins import BrokerWithLogins
from tests.clients.rocketmq.other_protocols import (
    INBOX,
    AmqpQueue,
    consumed,
    fill_inbox,
    headers,
    prepare_replay,
    read_all,
)
from tests.java.conftest import Program
from tests.served import ServedBroker

pytestmark = [pytest.mark.xdist_group("java"), pytest.mark.timeout(240)]

ANY_PORT = Address("127.0.0.1", 0)
SENDING = ("normal", "ordered", "delayed", "large", "transactions", "takeover", "requests")
CONSUMING = ("filters", "broadcasting", "lite", "pulls", "retries", "subscriptions", "trace", "namespaces")

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


def test_what_clients_do(rocketmq: Path, broker: ThreadBroker, start: Program, tmp_path: Path) -> None:
    address = broker.address("rocketmq")
    crashed = start(rocketmq, "rocketmq/Steps.java", address, "crash")
    replay = f"replay:{prepare_replay(broker)}:5"
    printed, _ = crashed.communicate(timeout=100)
    assert crashed.returncode == 7, printed + (tmp_path / "stderr-0").read_text()
    steps = [*SENDING, *CONSUMING, "queries", replay]
    if rocketmq.name.endswith("5.5.0"):
        steps.append("recall")  # clients of 4.x cannot
    program = start(rocketmq, "rocketmq/Steps.java", address, *steps)
    assert sorted(finish(program, tmp_path / "stderr-1")) == sorted(f"done {step}" for step in steps)
    large = {headers(each)["TAGS"]: each.value() for each in consumed(broker, "large", 3)}
    assert large[b"repeated"] == b"0123456789" * 50_000


@thorough
def test_other_protocols(rocketmq: Path, broker: ThreadBroker, start: Program, tmp_path: Path) -> None:
    fill_inbox(broker)
    with AmqpQueue(broker, "shop") as queue:
        address = broker.address("rocketmq")
        program = start(rocketmq, "rocketmq/Steps.java", address, "write:shop", "read:inbox:3")
        assert sorted(finish(program, tmp_path / "stderr-0")) == sorted(
            [*INBOX, "done write:shop", "done read:inbox:3"]
        )
        found = queue.take(3)
    records = {each.key(): each for each in consumed(broker, "shop", 3)}
    for number, text in enumerate(["straße 0 ", "straße 1 ", "straße 2 " * 1000]):
        body, properties = found[f"key{number}"]
        assert body.decode() == text
        assert (properties["TAGS"], properties["tenant"]) == (f"tag{number}", "blåu")
        record = records[b"key%d" % number]
        assert record.value() == body
        assert headers(record)["TAGS"] == b"tag%d" % number
        assert headers(record)["tenant"] == "blåu".encode()


@thorough
def test_logins(rocketmq: Path, start: Program, tmp_path: Path) -> None:
    with BrokerWithLogins(tmp_path, rocketmq=ANY_PORT) as broker:
        key, secret = broker.access_key()
        right, wrong = ({"ACCESS_KEY": key, "SECRET": each} for each in (secret, "wrong"))
        address = broker.address("rocketmq")
        for number, (login, code) in enumerate(((None, 10005), (wrong, 10005), (right, 16))):
            program = start(rocketmq, "rocketmq/Steps.java", address, "refused", environment=login)
            assert finish(program, tmp_path / f"stderr-{number}") == [f"code {code}", "done refused"]
        steps = ("normal", "transactions", "lite", "pulls", "queries", "requests")
        broker.allow("topic", *steps, "posthouse_REPLY_TOPIC")
        broker.allow("group", *steps, "asking", "replying", "lite-reader")
        program = start(rocketmq, "rocketmq/Steps.java", address, *steps, environment=right)
        assert sorted(finish(program, tmp_path / "stderr-3")) == sorted(f"done {each}" for each in steps)


@thorough
def test_tls(rocketmq: Path, start: Program, tmp_path: Path) -> None:
    """The clients check certificates only if they are told to."""
    (tmp_path / "stranger").mkdir()
    authority, stranger = Authority(tmp_path), Authority(tmp_path / "stranger")
    identity = authority.issue()
    with ThreadBroker(
        data=tmp_path / "data",
        rocketmq=ANY_PORT,
        tls_certificate=identity.certificate,
        tls_key=identity.key,
    ) as broker:
        for number, (trusted, steps, more) in enumerate(
            (
                (stranger, ["refused"], ["RemotingSendRequestException"]),
                (authority, ["normal", "transactions", "lite"], []),
            )
        ):
            properties = {
                "tls.enable": "true",
                "tls.test.mode.enable": "false",
                "tls.client.authServer": "true",
                "tls.client.trustCertPath": trusted.file,
            }
            address = broker.address("rocketmq")
            program = start(rocketmq, "rocketmq/Steps.java", address, *steps, properties=properties)
            printed = finish(program, tmp_path / f"stderr-{number}")
            assert sorted(printed) == sorted([*more, *(f"done {each}" for each in steps)])


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
        *_, accepted, done = finish(program, tmp_path / "stderr-0", "no more")
        assert done == "done restart"
        assert int(accepted.split()[1]) > 20


@thorough
def test_the_broker_is_killed(rocketmq: Path, start: Program, tmp_path: Path) -> None:
    """Three times, by -9, and started again on its data. What was accepted is consumed, and half messages are
    as they were decided."""
    data = tmp_path / "data"
    broker = ServedBroker(data, rocketmq=ANY_PORT)
    address = broker.address("rocketmq")
    try:
        program = start(rocketmq, "rocketmq/Steps.java", address, "restart", "deciding")
        for _ in range(3):
            wait_for_lines(program, "going", "deciding")
            broker.kill()
            broker = ServedBroker(data, rocketmq=address)
        wait_for_lines(program, "going", "deciding")
        printed = finish(program, tmp_path / "stderr-0", "no more")
        assert {"done restart", "done deciding"} <= set(printed)
        decided = read_all(broker.bootstrap, "deciding")
        assert len(set(decided)) == len(decided)  # each is committed once
        assert not [each for each in decided if each.endswith(b"rollback")]
    finally:
        broker.kill()


def wait_for_lines(program: "subprocess.Popen[str]", *wanted: str) -> None:
    """Another one of each."""
    assert program.stdout is not None
    missing = set(wanted)
    while missing:
        line = program.stdout.readline()
        assert line, f"the program ended before it printed {missing}"
        missing.discard(line.strip())
