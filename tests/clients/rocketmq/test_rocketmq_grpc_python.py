"""RocketMQ's gRPC client in Python, as PyPI has it."""

import sys
from functools import partial
from pathlib import Path

import pytest

from tests.clients.rocketmq.grpc_steps import (
    QUICK,
    STEPS,
    broker_with_logins,
    check_logins,
    check_steps,
    grpc_broker,
    run_program,
    thorough,
)

PROGRAM = Path(__file__).parent / "grpc" / "python_steps.py"

pytestmark = pytest.mark.timeout(240)


@thorough
def test_logins(tmp_path: Path) -> None:
    with broker_with_logins(tmp_path) as broker:
        command = [sys.executable, str(PROGRAM), broker.address("rocketmq_grpc"), "plain"]
        check_logins(broker, partial(run_program, command, home=tmp_path / "home"))


@pytest.mark.parametrize("steps", [QUICK, pytest.param(STEPS, marks=thorough)], ids=["quick", "all"])
def test_steps(steps: tuple[str, ...], tmp_path: Path) -> None:
    with grpc_broker(tmp_path, has_tls=False) as broker:
        command = [sys.executable, str(PROGRAM), broker.address("rocketmq_grpc"), "plain"]
        check_steps(broker, partial(run_program, command, home=tmp_path / "home"), steps)
