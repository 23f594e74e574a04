"""Java programs with the own clients of Kafka and RocketMQ. They run one after the other: each JVM wants a
core."""

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.java import jars

HERE = Path(__file__).parent

Program = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="session")
def java_clients() -> Path:
    return _fetched("clients", jars.CLIENTS)


@pytest.fixture(scope="session")
def java_streams() -> Path:
    _only_when_asked_for()
    return _fetched("streams", jars.STREAMS)


@pytest.fixture(scope="session")
def java_connect() -> Path:
    _only_when_asked_for()
    return _fetched("connect", jars.CONNECT)


@pytest.fixture(scope="session")
def rocketmq_4() -> Path:
    _only_when_asked_for()
    return _fetched("rocketmq", jars.ROCKETMQ_4)


@pytest.fixture(scope="session")
def rocketmq_5() -> Path:
    return _fetched("rocketmq", jars.ROCKETMQ_5)


@pytest.fixture(scope="session")
def rocketmq_grpc() -> Path:
    _only_when_asked_for()
    return _fetched("rocketmq-grpc", jars.ROCKETMQ_GRPC)


def _only_when_asked_for() -> None:
    if not os.environ.get("POSTHOUSE_JAVA"):
        pytest.skip("takes a minute and fetches 100 MB: make test-java")


def _fetched(name: str, artifacts: tuple[str, ...]) -> Path:
    try:
        return jars.fetched(name, artifacts)
    except jars.Unavailable as error:
        pytest.skip(f"Java clients: {error}")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Program]:
    """Starts a Java program; whatever still runs at the end of the test is killed."""
    running: list[subprocess.Popen[str]] = []

    def begin(
        libraries: Path,
        program: str,
        *arguments: str,
        properties: Mapping[str, object] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> "subprocess.Popen[str]":
        """`program` is a source file of ours, or a class in one of the jars."""
        is_ours = program.endswith(".java")
        class_path = jars.compiled(HERE / program, libraries) if is_ours else f"{libraries}/*"
        main = (HERE / program).stem if is_ours else program
        command = jars.java(class_path, main, *arguments, home=tmp_path / "home", properties=properties)
        errors = (tmp_path / f"stderr-{len(running)}").open("w")
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=os.environ | dict(environment or {}),
        )
        errors.close()
        running.append(process)
        return process

    yield begin
    for process in running:
        process.kill()
        process.communicate()
