"""The tests of amqplib for Node.js that need a broker, from the npm package."""

import os
import socket
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from tools.conformance.amqp_broker import AMQP_PORT, amqp_broker
from tools.conformance.results import Outcome, SuiteRun, TestResult
from tools.conformance.workspace import AMQPLIB_VERSION, SetupError, Workspace, unpack

NAME = "amqplib"
FILE_SECONDS = 60
"""amqplib gives a test one second, which Node 20 takes for that of a whole file."""

FILES = ("callback_api", "channel_api", "connect")
_WITHOUT_BROKER = ("bitset", "channel", "codec", "connection", "data", "frame", "mux", "recovery", "uri_spec")
EXCLUDED = dict.fromkeys(_WITHOUT_BROKER, "tests amqplib alone; there is no broker in it")


def prepare(workspace: Workspace, say: Callable[[str], None]) -> Path:
    directory = workspace.root / f"{NAME}-{AMQPLIB_VERSION}"
    if not directory.exists():
        say("fetching the source")
        unpack(_download(workspace), directory)
    listed = {file.name.removesuffix(".test.js") for file in (directory / "test").glob("*.test.js")}
    if listed != {*FILES, *EXCLUDED}:
        raise SetupError(f"amqplib {AMQPLIB_VERSION} has other test files than those that are listed here.")
    return directory


def _download(workspace: Workspace) -> Path:
    archive = workspace.downloads / f"{NAME}-{AMQPLIB_VERSION}.tgz"
    if not archive.exists():
        command = ["npm", "pack", "--silent", f"{NAME}@{AMQPLIB_VERSION}"]
        workspace.run("download-amqplib", command, cwd=workspace.downloads)
    return archive


def run(
    workspace: Workspace,
    directory: Path,
    *,
    only: list[str],
    address: str | None,
    report: Callable[[TestResult], None],
) -> SuiteRun:
    results: list[TestResult] = []
    # By this name it is bound in IPv4 and, where it has both, in IPv6; one of the tests connects with that.
    with amqp_broker(workspace, NAME, address, f"localhost:{AMQP_PORT}"):
        for file in FILES:
            outcomes = _execute(workspace, directory, file)
            for result in _results(outcomes, file):
                if not only or any(word in result.name for word in only):
                    results.append(_excused(result))
                    report(results[-1])
    return SuiteRun(suite=NAME, version=AMQPLIB_VERSION, results=tuple(results), excluded=EXCLUDED)


def _excused(result: TestResult) -> TestResult:
    if result.outcome is Outcome.FAILED and result.name.endswith(": ipv6") and not _has_ipv6():
        why = "on this machine localhost has no address in IPv6, so the broker has none"
        return replace(result, outcome=Outcome.SKIPPED, detail=why)
    return result


def _has_ipv6() -> bool:
    return any(family is socket.AF_INET6 for family, *_ in socket.getaddrinfo("localhost", AMQP_PORT))


def _execute(workspace: Workspace, directory: Path, file: str) -> Path:
    logs = workspace.logs.absolute()
    outcomes, log = logs / f"amqplib-{file}.xml", logs / f"amqplib-{file}.log"
    outcomes.unlink(missing_ok=True)
    command = [
        *("node", "--test", f"--test-timeout={FILE_SECONDS * 1000}"),
        *("--test-reporter=spec", "--test-reporter-destination=stdout"),
        *("--test-reporter=junit", f"--test-reporter-destination={outcomes}"),
        f"test/{file}.test.js",
    ]
    environment = {name: value for name, value in os.environ.items() if name != "URL"}
    with log.open("w") as output:
        try:
            subprocess.run(
                command,
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=FILE_SECONDS + 30,
                check=False,
            )
        except FileNotFoundError:
            raise SetupError("there is no node on this machine; install Node.js 20 or newer.") from None
        except subprocess.TimeoutExpired:
            raise SetupError(f"the tests of {file} did not end; see {log}") from None
    if not outcomes.exists():
        raise SetupError(f"node ended without results; see {log}")
    return outcomes


def _results(outcomes: Path, file: str) -> Iterator[TestResult]:
    yield from _cases(ElementTree.parse(outcomes).getroot(), [file])


def _cases(element: ElementTree.Element, around: list[str]) -> Iterator[TestResult]:
    """Suites nest; their names and that of the file make that of a test unique. A file that hung is one."""
    for child in element:
        name = [*around, Path(child.get("name", "")).name]
        if child.tag != "testcase":  # a suite that did not end has no proper tag
            yield from _cases(child, name)
        else:
            failure, skipped = child.find("failure"), child.find("skipped")
            problem = failure if failure is not None else skipped
            yield TestResult(
                name=": ".join(name),
                outcome=_outcome(failure, skipped),
                seconds=float(child.get("time", "0")),
                detail="" if problem is None else problem.get("message", "").partition("\n")[0],
            )


def _outcome(failure: ElementTree.Element | None, skipped: ElementTree.Element | None) -> Outcome:
    if failure is not None:
        return Outcome.FAILED
    return Outcome.PASSED if skipped is None else Outcome.SKIPPED
