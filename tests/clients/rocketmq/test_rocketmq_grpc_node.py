"""RocketMQ's client in Node.js, with TLS and without. With TLS it trusts only authorities that it knows."""

import shutil
import subprocess
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

pytestmark = [pytest.mark.timeout(500), thorough]

VERSION = "1.0.8"
PROGRAM = Path(__file__).parent / "grpc" / "node" / "steps.mjs"
PACKAGES = Path(__file__).parents[3] / "build" / "node" / f"rocketmq-client-nodejs-{VERSION}"
_INSTALL_SECONDS = 200


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The interpreter; the packages are installed under `build`, with nothing in the home directory."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("there is no node, or no npm, on this machine")
    if (PACKAGES / "complete").exists():
        return node
    PACKAGES.mkdir(parents=True, exist_ok=True)
    cache = PACKAGES.parent / "cache"
    command = [npm, "install", "--no-fund", "--no-audit", "--ignore-scripts", "--cache", str(cache)]
    command += ["--prefix", str(PACKAGES), f"rocketmq-client-nodejs@{VERSION}"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, cwd=PACKAGES, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm did not install RocketMQ's client in {_INSTALL_SECONDS} s")
    if done.returncode:
        pytest.skip(f"npm cannot install RocketMQ's client: {done.stderr[-300:]}")
    (PACKAGES / "complete").touch()
    return node


@pytest.mark.parametrize(("tls", "steps"), [("plain", STEPS), ("tls", QUICK)])
def test_steps(node: str, tls: str, steps: tuple[str, ...], tmp_path: Path) -> None:
    with grpc_broker(tmp_path, has_tls=tls == "tls") as broker:
        command = [node, str(PROGRAM), broker.address("rocketmq_grpc"), tls]
        run = partial(
            run_program,
            command,
            home=tmp_path / "home",
            STEPS_PACKAGES=str(PACKAGES / "package.json"),
            GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=str(tmp_path / "ca.pem"),
        )
        check_steps(broker, run, steps)


def test_logins(node: str, tmp_path: Path) -> None:
    with broker_with_logins(tmp_path) as broker:
        command = [node, str(PROGRAM), broker.address("rocketmq_grpc"), "plain"]
        packages = str(PACKAGES / "package.json")
        check_logins(broker, partial(run_program, command, home=tmp_path / "home", STEPS_PACKAGES=packages))
