"""RocketMQ's gRPC client in Go, with TLS, which is its default, and without."""

from functools import partial
from pathlib import Path

import pytest

from tests.clients.rocketmq.go_programs import built
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

pytestmark = [pytest.mark.timeout(500), thorough]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(Path(__file__).parent / "grpc" / "go", tmp_path_factory.mktemp("go") / "steps")


@pytest.mark.parametrize(("tls", "steps"), [("tls", STEPS), ("plain", QUICK)])
def test_steps(program: Path, tls: str, steps: tuple[str, ...], tmp_path: Path) -> None:
    with grpc_broker(tmp_path, has_tls=tls == "tls") as broker:
        command = [str(program), broker.address("rocketmq_grpc"), tls]
        check_steps(broker, partial(run_program, command, home=tmp_path / "home"), steps)


def test_logins(program: Path, tmp_path: Path) -> None:
    with broker_with_logins(tmp_path) as broker:
        command = [str(program), broker.address("rocketmq_grpc"), "plain"]
        check_logins(broker, partial(run_program, command, home=tmp_path / "home"))
