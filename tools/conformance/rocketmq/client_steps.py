"""The programs of the test suite with stock clients: a step passes if both brokers do what it wants.

`python -m tools.conformance.rocketmq.client_steps PROGRAM PEER JARS` starts the broker and runs one of them.
It prints the steps that were done. To be run in a network namespace of its own: the ports are RocketMQ's.
"""

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from bench.processes import Served
from bench.rocketmq.peers import (
    ADDRESS,
    ENDPOINTS,
    POSTHOUSE,
    ROCKETMQ,
    SERVER_VERSION,
    in_namespace,
    posthouse,
    rocketmq,
)
from tests.clients.rocketmq.grpc_steps import STEPS as GRPC_STEPS
from tests.java import jars
from tools.conformance.results import Outcome, SuiteRun, TestResult
from tools.conformance.rocketmq.grpc_answers.setup import Group, prepare_all
from tools.conformance.workspace import SetupError, Workspace

NAME = "rocketmq-clients"
TESTS = Path(__file__).parents[3] / "tests"
TOPICS = {
    **dict.fromkeys(("exchange", "filters", "retries", "redelivery"), "NORMAL"),
    "ordered": "FIFO",
    "delayed": "DELAY",
    "transactions": "TRANSACTION",
    "takeover": "TRANSACTION",
}
"""Of gRPC steps, each with the only type of messages that upstream's topic then takes."""
GROUPS = (
    *(
        Group(name=each)
        for each in (*TOPICS, "tags", "sql", "undertakers")
        if each not in ("ordered", "retries")
    ),
    Group(name="ordered", is_ordered=True),
    Group(name="retries", retries=1),
)
_REMOTING_STEPS = (
    *("normal", "ordered", "delayed", "large", "transactions", "takeover"),
    *("filters", "broadcasting", "lite", "retries", "subscriptions", "trace", "namespaces"),
)
_OWN_STEPS = tuple(each for each in GRPC_STEPS if each != "inbox")
"""But for what is sent by Kafka."""
_CRASHED = 7
_LIMIT_SECONDS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    steps: tuple[str, ...]
    command: Callable[[Path], list[str]]
    """Given a directory to be at home in; names of steps come after it."""
    is_grpc: bool


def _java_remoting(home: Path) -> list[str]:
    class_path = jars.compiled(TESTS / "java/rocketmq/Steps.java", jars.fetched("rocketmq", jars.ROCKETMQ_5))
    return [*jars.java(class_path, "Steps", home=home), ADDRESS]


def _java_grpc(home: Path) -> list[str]:
    libraries = jars.fetched("rocketmq-grpc", jars.ROCKETMQ_GRPC)
    class_path = jars.compiled(TESTS / "java/rocketmq_grpc/Steps.java", libraries)
    return [*jars.java(class_path, "Steps", home=home), ENDPOINTS, "plain"]


def _python_grpc(home: Path) -> list[str]:
    return [sys.executable, str(TESTS / "clients/rocketmq/grpc/python_steps.py"), ENDPOINTS, "plain"]


PROGRAMS = {
    "java-remoting": Program(steps=_REMOTING_STEPS, command=_java_remoting, is_grpc=False),
    "java-grpc": Program(steps=_OWN_STEPS, command=_java_grpc, is_grpc=True),
    "python-grpc": Program(steps=_OWN_STEPS, command=_python_grpc, is_grpc=True),
}


def prepare(workspace: Workspace, say: Callable[[str], None]) -> Path:
    say("fetching RocketMQ and its clients")
    try:
        for program in PROGRAMS.values():
            program.command(workspace.root)
        return jars.fetched("rocketmq-server", jars.ROCKETMQ_SERVER)
    except jars.Unavailable as error:
        raise SetupError(str(error)) from None


def run(
    workspace: Workspace,
    directory: Path,
    /,
    *,
    only: list[str],
    address: str | None,
    report: Callable[[TestResult], None],
) -> SuiteRun:
    if address is not None:
        raise SetupError("the programs use both protocols: there is no one address to test")
    results = []
    for name, program in PROGRAMS.items():
        if only and not any(part in f"{name} {step}" for part in only for step in program.steps):
            continue
        theirs, own = (_done(workspace, directory, peer, name) for peer in (ROCKETMQ, POSTHOUSE))
        for each in compared(name, program.steps, theirs, own):
            results.append(each)
            report(each)
    return SuiteRun(suite=NAME, version=SERVER_VERSION, results=tuple(results), excluded={})


def compared(program: str, steps: tuple[str, ...], theirs: set[str], own: set[str]) -> list[TestResult]:
    """With the step before the others, whose program crashes. One that is not done with Posthouse fails by a
    name that no list has."""
    results = []
    for step in ("crash", *steps):
        is_same = step in theirs and step in own
        name = f"{program} {step}" if step in own else f"{program} {step}, with {POSTHOUSE}"
        detail = "" if is_same else f"not done with {ROCKETMQ if step in own else POSTHOUSE}"
        outcome = Outcome.PASSED if is_same else Outcome.FAILED
        results.append(TestResult(name=name, outcome=outcome, seconds=0.0, detail=detail))
    return results


def _done(workspace: Workspace, directory: Path, peer: str, program: str) -> set[str]:
    """The steps."""
    module = [sys.executable, "-m", "tools.conformance.rocketmq.client_steps"]
    log = workspace.logs / f"{NAME}-{program}-{peer.lower()}.log"
    with log.open("w") as errors:
        try:
            ended = subprocess.run(
                in_namespace([*module, program, peer, str(directory)]),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                timeout=_LIMIT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise SetupError(f"{program} with {peer} did not end in {_LIMIT_SECONDS} s; see {log}") from None
    if ended.returncode:
        raise SetupError(f"{program} with {peer} did not end well; what was said is in {log}")
    return {line.removeprefix("done ") for line in ended.stdout.splitlines() if line.startswith("done ")}


def main(name: str, peer: str, libraries: str) -> None:
    program = PROGRAMS[name]
    with _started(peer, Path(libraries)), tempfile.TemporaryDirectory() as directory:
        if program.is_grpc:
            asyncio.run(prepare_all(ADDRESS, TOPICS, GROUPS))
        home = Path(directory)
        command = program.command(home)
        crashed = subprocess.run([*command, "crash"], cwd=home, stdout=sys.stderr, check=False)
        if crashed.returncode == _CRASHED:
            print("done crash", flush=True)
        # Those that are not done are missing in what it prints.
        subprocess.run([*command, *program.steps], cwd=home, check=False)


def _started(peer: str, libraries: Path) -> AbstractContextManager[Served]:
    """Upstream's with polls and leases as short as the programs want them, as in its own tests: otherwise it
    takes 5 and 10 seconds at least."""
    if peer == POSTHOUSE:
        return posthouse(libraries)
    return rocketmq(
        libraries, grpcClientConsumerMinLongPollingTimeoutMillis=0, minInvisibleTimeMillsForRecv=0
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
