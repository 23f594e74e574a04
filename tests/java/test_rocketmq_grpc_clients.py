"""RocketMQ's gRPC client in Java, with TLS, which is its default, and without."""

from functools import partial
from pathlib import Path

import pytest

from tests.clients.rocketmq.grpc_steps import (
    PRIORITIES,
    QUICK,
    STEPS,
    check_steps,
    grpc_broker,
    run_program,
)
from tests.java import jars

pytestmark = [pytest.mark.xdist_group("java"), pytest.mark.timeout(500)]

PROGRAM = Path(__file__).parent / "rocketmq_grpc" / "Steps.java"


@pytest.mark.parametrize(("tls", "steps"), [("tls", STEPS), ("plain", QUICK)])
def test_steps(rocketmq_grpc: Path, tls: str, steps: tuple[str, ...], tmp_path: Path) -> None:
    home = tmp_path / "home"
    command = jars.java(jars.compiled(PROGRAM, rocketmq_grpc), "Steps", home=home)
    with grpc_broker(tmp_path, has_tls=tls == "tls") as broker:
        command += [broker.address("rocketmq_grpc"), tls]
        check_steps(broker, partial(run_program, command, home=home), (*steps, PRIORITIES))
