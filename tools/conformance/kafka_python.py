"""kafka-python's integration tests, from its source distribution.

The distribution has the tests but not everything that they import; the missing pieces are written here.
They only have to satisfy imports: with KAFKA_URI set the tests start no broker of their own.
"""

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from tools.conformance.broker import broker
from tools.conformance.expectations import known_failures
from tools.conformance.results import Outcome, SuiteRun, TestResult
from tools.conformance.workspace import KAFKA_PYTHON_VERSION, SetupError, Workspace, unpack

NAME = "kafka-python"
PROTOCOL_VERSION = "4.2.0"
TEST_SECONDS = 120

EXCLUDED = {
    "test_ssl_integration": "starts a Kafka of its own, in Java, to talk TLS with",
    "test_sasl_integration": "starts a Kafka of its own, in Java, to log in to",
}
"""Modules of test/integration that cannot be pointed at another broker."""

SERVICE_SHIM = '''\
"""Stands in for a module that the source distribution leaves out."""


class ExternalService:
    def __init__(self, host, port):
        self.host = host
        self.port = port


class SpawnedService:
    def __init__(self, *args, **kwargs):
        raise RuntimeError("this run starts no broker: KAFKA_URI names one")
'''


def prepare(workspace: Workspace, say: Callable[[str], None]) -> Path:
    """The directory of the unpacked suite, ready to run."""
    directory = workspace.root / f"kafka-python-{KAFKA_PYTHON_VERSION}"
    if not directory.exists():
        say("fetching the source distribution")
        unpack(_download(workspace), directory)
    (directory / "servers" / PROTOCOL_VERSION / "kafka-bin").mkdir(parents=True, exist_ok=True)
    (directory / "test" / "__init__.py").touch()
    (directory / "test" / "service.py").write_text(SERVICE_SHIM)
    _virtual_environment(workspace, directory, say)
    return directory


def _download(workspace: Workspace) -> Path:
    found = sorted(workspace.downloads.glob(f"kafka_python-{KAFKA_PYTHON_VERSION}.tar.*"))
    if found:
        return found[0]
    requirement = f"kafka-python=={KAFKA_PYTHON_VERSION}"
    workspace.run(
        "download-kafka-python",
        [
            *(sys.executable, "-m", "pip", "download", "--disable-pip-version-check"),
            *("--no-deps", "--no-binary", ":all:", "--dest", str(workspace.downloads), requirement),
        ],
    )
    found = sorted(workspace.downloads.glob(f"kafka_python-{KAFKA_PYTHON_VERSION}.tar.*"))
    if not found:
        raise SetupError(f"pip fetched no source distribution of {requirement}")
    return found[0]


def _virtual_environment(workspace: Workspace, directory: Path, say: Callable[[str], None]) -> None:
    """Its own, so that the suite's needs do not become the project's."""
    ready = directory / "venv" / "ready"
    if ready.exists():
        return
    say("installing what the suite needs")
    shutil.rmtree(directory / "venv", ignore_errors=True)
    workspace.run("venv-kafka-python", [sys.executable, "-m", "venv", str(directory / "venv")])
    workspace.run(
        "install-kafka-python",
        [
            *(str(directory / "venv/bin/python"), "-m", "pip", "install", "--disable-pip-version-check"),
            f"kafka-python[crc32c,lz4,snappy,zstd]=={KAFKA_PYTHON_VERSION}",
            *("pytest", "pytest-timeout"),
        ],
    )
    ready.touch()


def run(
    workspace: Workspace,
    directory: Path,
    *,
    only: list[str],
    address: str | None,
    report: Callable[[TestResult], None],
) -> SuiteRun:
    with ExitStack() as stack:
        served = None
        if address is None:
            # One test wants sessions of 3 s, which Kafka, like us, refuses unless it is told not to.
            served = stack.enter_context(broker(workspace, NAME, group_min_session_ms="1000"))
            address = served.address
        suite = _Suite(workspace, directory, address)
        selection = ["-k", " or ".join(only)] if only else []
        results = suite.run("kafka-python", ["test/integration", *selection], report)
        results = _with_second_tries(suite, results)
        if served is not None and not served.alive:
            raise SetupError(f"the broker ended during the tests; see {served.log}")
    return SuiteRun(
        suite=NAME, version=KAFKA_PYTHON_VERSION, results=tuple(results.values()), excluded=EXCLUDED
    )


def _with_second_tries(suite: "_Suite", results: dict[str, TestResult]) -> dict[str, TestResult]:
    """The client has a race of its own: a topic that is subscribed to while the first metadata request is
    under way is not asked for, and its consumer waits for minutes. It hits about one consumer in 200."""
    known = known_failures(NAME)
    failed = [
        test for test, each in results.items() if each.outcome is Outcome.FAILED and each.name not in known
    ]
    if not failed:
        return results
    again = suite.run("kafka-python-again", failed, lambda result: None)
    return results | {
        test: replace(each, detail="passed when tried again")
        for test, each in again.items()
        if each.outcome is Outcome.PASSED
    }


class _Suite:
    def __init__(self, workspace: Workspace, directory: Path, address: str) -> None:
        self._logs = workspace.logs.absolute()
        self._directory = directory.absolute()
        self._environment = os.environ | {
            "KAFKA_URI": f"kafka://{address}",
            "KAFKA_VERSION": PROTOCOL_VERSION,
            "PYTHONUNBUFFERED": "1",
        }

    def run(
        self, name: str, selection: list[str], report: Callable[[TestResult], None]
    ) -> dict[str, TestResult]:
        """What the selected tests did, by the name that pytest selects them with."""
        outcomes, log = self._logs / f"{name}.xml", self._logs / f"{name}.log"
        outcomes.unlink(missing_ok=True)
        command = [
            *(str(self._directory / "venv/bin/python"), "-m", "pytest", "-v", *selection),
            *("-o", "addopts=", "-o", "log_level=WARNING", "-p", "no:cacheprovider", "--tb=short"),
            *(f"--timeout={TEST_SECONDS}", "--timeout-method=signal", f"--junitxml={outcomes}"),
            *(f"--ignore=test/integration/{module}.py" for module in EXCLUDED),
        ]
        process = subprocess.Popen(
            command,
            cwd=self._directory,
            env=self._environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert process.stdout is not None
        with log.open("w") as output:
            for line in process.stdout:
                output.write(line)
                output.flush()
                progress = _progress(line)
                if progress is not None:
                    report(progress)
        process.wait()
        if not outcomes.exists():
            raise SetupError(f"pytest ended without results; see {log}")
        return dict(_results(outcomes))


def _progress(line: str) -> TestResult | None:
    """A line of `pytest -v`, such as `test/integration/test_x.py::test_y PASSED   [ 10%]`."""
    name, _, rest = line.partition(" ")
    words = rest.split()
    if "::" not in name or not words or words[0].lower() not in (*Outcome, "error"):
        return None
    outcome = Outcome.FAILED if words[0] == "ERROR" else Outcome(words[0].lower())
    return TestResult(name=name.rpartition("::")[2], outcome=outcome, seconds=0.0)


def _results(outcomes: Path) -> Iterator[tuple[str, TestResult]]:
    for case in ElementTree.parse(outcomes).iter("testcase"):
        outcome, detail = Outcome.PASSED, ""
        for problem in case:
            if problem.tag in ("failure", "error"):
                outcome, detail = Outcome.FAILED, problem.get("message", "")
            elif problem.tag == "skipped":
                outcome, detail = Outcome.SKIPPED, problem.get("message", "")
        name = case.get("name", "")
        file = case.get("classname", "").replace(".", "/")
        result = TestResult(
            name=name,
            outcome=outcome,
            seconds=float(case.get("time", "0")),
            detail=detail.partition("\n")[0],
        )
        yield f"{file}.py::{name}", result
