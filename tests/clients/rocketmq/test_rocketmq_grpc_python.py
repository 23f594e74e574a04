"""RocketMQ's gRPC client in Python, as PyPI has it."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from posthouse.settings import Address
from tests.clients.rocketmq.grpc_steps import (
    PRIORITIES,
    QUICK,
    STEPS,
    broker_with_logins,
    check_logins,
    check_steps,
    grpc_broker,
    run_program,
    thorough,
)
from tests.clients.rocketmq.other_protocols import read_all
from tests.served import ServedBroker

PROGRAM = Path(__file__).parent / "grpc" / "python_steps.py"

pytestmark = pytest.mark.timeout(240)


def test_logins(tmp_path: Path) -> None:
    with broker_with_logins(tmp_path) as broker:
        command = [sys.executable, str(PROGRAM), broker.address("rocketmq_grpc"), "plain"]
        check_logins(broker, partial(run_program, command, home=tmp_path / "home"))


@pytest.mark.parametrize("steps", [QUICK, pytest.param(STEPS, marks=thorough)], ids=["quick", "all"])
def test_steps(steps: tuple[str, ...], tmp_path: Path) -> None:
    with grpc_broker(tmp_path, has_tls=False) as broker:
        command = [sys.executable, str(PROGRAM), broker.address("rocketmq_grpc"), "plain"]
        check_steps(broker, partial(run_program, command, home=tmp_path / "home"), (*steps, PRIORITIES))


@thorough
def test_the_broker_is_killed(tmp_path: Path) -> None:
    """Three times, by -9, and started again on its data. What was accepted is consumed, and half messages are
    as they were decided."""
    broker = ServedBroker(tmp_path / "data", rocketmq_grpc=Address("127.0.0.1", 0))
    address = broker.address("rocketmq_grpc")
    program = subprocess.Popen(
        [sys.executable, str(PROGRAM), address, "plain", "killed"],
        env=os.environ | {"HOME": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert program.stdout is not None
        for _ in range(3):
            assert program.stdout.readline() == "sending\n"
            broker.kill()
            broker = ServedBroker(tmp_path / "data", rocketmq_grpc=address)
        assert program.stdout.readline() == "sending\n"
        printed, _ = program.communicate(timeout=180)
        assert program.returncode == 0, printed
        *_, accepted, done = printed.splitlines()
        assert done == "done killed"
        assert int(accepted.split()[1]) >= 80
        found = read_all(broker.bootstrap, "killed")
        assert len(set(found)) == len(found)  # each is sent or committed once
        assert not [each for each in found if each.startswith(b"rollback")]
    finally:
        program.kill()
        program.communicate()
        broker.kill()
