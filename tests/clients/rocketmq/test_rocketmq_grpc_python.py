"""RocketMQ's gRPC client in Python, as PyPI has it."""

import asyncio
import sys
from functools import partial
from pathlib import Path

import pytest

from posthouse.broker.access.operations import Kind, Operation
from tests.clients.rocketmq.grpc_steps import (
    PRIORITIES,
    QUICK,
    STEPS,
    check_steps,
    grpc_broker,
    run_program,
    thorough,
)
from tests.protocols.rocketmq.grpc.signed_calls import USERS, add_keys, allow, secured

PROGRAM = Path(__file__).parent / "grpc" / "python_steps.py"

pytestmark = pytest.mark.timeout(240)


@pytest.mark.parametrize("steps", [QUICK, pytest.param(STEPS, marks=thorough)], ids=["quick", "all"])
def test_steps(steps: tuple[str, ...], tmp_path: Path) -> None:
    with grpc_broker(tmp_path, has_tls=False) as broker:
        command = [sys.executable, str(PROGRAM), broker.address("rocketmq_grpc"), "plain"]
        check_steps(broker, partial(run_program, command, home=tmp_path / "home"), (*steps, PRIORITIES))


async def test_logins(tmp_path: Path) -> None:
    """With its key and secret it is let in, with another one it is not."""
    async with secured(tmp_path / "data") as broker:
        await add_keys(broker)
        name = "exchange"
        await allow(
            broker,
            "ann",
            (Operation.CREATE, Kind.TOPIC, name),
            (Operation.WRITE, Kind.TOPIC, name),
            (Operation.READ, Kind.TOPIC, name),
            (Operation.READ, Kind.GROUP, name),
        )
        command = [sys.executable, str(PROGRAM), broker.address("rocketmq_grpc"), "plain"]
        keys = {"ACCESS_KEY": "ann-key", "ACCESS_SECRET": USERS["ann"]}
        run = partial(run_program, command, home=tmp_path / "home")
        done = await asyncio.to_thread(run, name, **keys)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.splitlines() == ["done exchange"]
        failures = broker.app.broker.access.login_failures
        for others in ({"ACCESS_SECRET": "another secret"}, {"ACCESS_KEY": "nobody"}):
            before = failures["rocketmq_grpc"]
            refused = await asyncio.to_thread(run, "refused", **keys | others)
            assert refused.returncode == 0, refused.stdout + refused.stderr
            assert "failed to fetch topic:refused route" in refused.stdout
            assert failures["rocketmq_grpc"] > before
        assert "refused" not in {each.name for each in broker.app.broker.topics}
