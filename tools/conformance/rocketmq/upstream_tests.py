"""Upstream's integration tests of the gRPC protocol (`test/grpc/v2`), from its jar of tests at Maven Central.

There they start a cluster of upstream's own. Here `upstream/` has a base class in the place of the one that
does so, and a program that runs the tests against the address that it is given.
"""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.rocketmq.peers import SERVER_VERSION
from tests.certificates import Authority
from tests.java import jars
from tools.conformance.broker import broker
from tools.conformance.results import Outcome, SuiteRun, TestResult
from tools.conformance.workspace import SetupError, Workspace

NAME = "rocketmq-upstream"
PROGRAM = Path(__file__).parent / "upstream" / "GrpcTests.java"
_LIMIT_SECONDS = 300


def prepare(workspace: Workspace, say: Callable[[str], None]) -> Path:
    say("fetching RocketMQ's tests")
    try:
        return jars.fetched("rocketmq-tests", jars.ROCKETMQ_TESTS)
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
        raise SetupError("these tests need both protocols, and TLS: there is no one address to test")
    certificates = workspace.root / "rocketmq-certificates"
    certificates.mkdir(exist_ok=True)
    identity = Authority(certificates).issue()
    settings = {"tls_certificate": str(identity.certificate), "tls_key": str(identity.key)}
    settings |= {"rocketmq": "127.0.0.1:0", "rocketmq_grpc": "127.0.0.1:0"}
    with broker(workspace, NAME, **settings) as running:
        printed = _printed(
            workspace, directory, running.listeners["rocketmq"], running.listeners["rocketmq_grpc"]
        )
    results = [each for each in parsed(printed) if not only or any(part in each.name for part in only)]
    for each in results:
        report(each)
    return SuiteRun(suite=NAME, version=SERVER_VERSION, results=tuple(results), excluded={})


def parsed(printed: str) -> Iterator[TestResult]:
    """Beside the results, libraries print about themselves."""
    for line in printed.splitlines():
        if line.startswith("test") and line.count("\t") == 3:
            name, outcome, milliseconds, detail = line.split("\t")
            yield TestResult(
                name=name, outcome=Outcome(outcome), seconds=int(milliseconds) / 1000, detail=detail
            )


def _printed(workspace: Workspace, directory: Path, remoting: str, grpc: str) -> str:
    home = jars.CACHE / "home"
    command = ["java", "-Xmx256m", "-XX:+UseSerialGC", f"-Duser.home={home}"]
    command += [f"-Drocketmq.namesrv.addr={remoting}", "-cp", jars.compiled(PROGRAM, directory)]
    log = workspace.logs / f"{NAME}.log"
    with log.open("w") as errors:
        try:
            ended = subprocess.run(
                [*command, PROGRAM.stem, grpc.rpartition(":")[2]],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                timeout=_LIMIT_SECONDS,
                cwd=workspace.logs,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise SetupError(f"the tests did not end in {_LIMIT_SECONDS} s; see {log}") from None
    if ended.returncode:
        raise SetupError(f"the tests did not end well; what was said is in {log}")
    return ended.stdout
