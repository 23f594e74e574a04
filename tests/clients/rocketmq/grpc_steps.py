"""What stock gRPC clients of every language do, each in a program of its own: the same steps, topics and
groups.

A program is called with the address of the broker, `tls` or `plain`, and names of steps. All steps run at
once, because they wait most of the time. It prints `done STEP` for each. `crash` sends a half message and
exits with 7; another process with the step `takeover` is asked for it.
"""

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from posthouse.client import Client
from posthouse.settings import Address
from posthouse.testing import ThreadBroker
from tests.certificates import Authority
from tests.clients.rocketmq.logins import BrokerWithLogins
from tests.clients.rocketmq.other_protocols import AmqpQueue, consumed, fill_inbox, headers

QUICK = (
    "exchange",
    "ordered",
    "delayed",
    "recall",
    "transactions",
    "takeover",
    "filters",
    "selective",
    "redelivery",
    "inbox",
)
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


def broker_with_logins(directory: Path) -> BrokerWithLogins:
    return BrokerWithLogins(directory, rocketmq_grpc=Address("127.0.0.1", 0))


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
    fill_inbox(broker)
    crashed = run("crash")
    assert crashed.returncode == 7, crashed.stdout + crashed.stderr
    with AmqpQueue(broker, "exchange") as queue:
        check_done(run(*steps), steps)
        queued = queue.take(10)

    records = consumed(broker, "exchange", 10)
    assert sorted(each.value() or b"" for each in records) == [b"message %d" % each for each in range(10)]
    for each in records:
        number = (each.value() or b"")[-1:]
        tag = "odd" if int(number) % 2 else "even"
        assert each.key() == b"key" + number
        assert (headers(each)["TAGS"], headers(each)["tenant"]) == (tag.encode(), "blåu".encode())
        body, properties = queued[f"key{int(number)}"]
        assert body == each.value()
        assert (properties["TAGS"], properties["tenant"]) == (tag, "blåu")
    if "retries" in steps:
        [dead] = consumed(broker, ".DLQ.retries", 1)
        assert dead.value() == b"bad"


def check_done(program: "subprocess.CompletedProcess[str]", steps: Sequence[str]) -> None:
    assert program.returncode == 0, program.stdout + program.stderr
    printed = [line for line in program.stdout.splitlines() if line.startswith("done ")]
    assert sorted(printed) == sorted(f"done {step}" for step in steps)


def check_logins(broker: BrokerWithLogins, run: Run) -> None:
    """With no access key, with a wrong secret, without permissions, and with all that is needed."""
    key, secret = broker.access_key()
    for login in ({}, {"ACCESS_KEY": key, "SECRET": "wrong"}, {"ACCESS_KEY": key, "SECRET": secret}):
        check_done(run("refused", **login), ["refused"])
    # Not every client says why.
    broker.wait_for_refusals({("login", "access-key"), ("read", "topic:refused")})
    steps = ("exchange", "transactions", "selective")
    broker.allow("topic", *steps)
    broker.allow("group", "exchange", "transactions", "by-tag", "by-sql")
    check_done(run(*steps, ACCESS_KEY=key, SECRET=secret), steps)
