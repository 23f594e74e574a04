"""librdkafka's tests that need a broker, each number in a process of its own."""

import os
import signal
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from tools.conformance.kafka_path import missing_for_java
from tools.conformance.librdkafka_build import library_version
from tools.conformance.librdkafka_list import Batch, TestList
from tools.conformance.librdkafka_output import results_of
from tools.conformance.results import Outcome, SuiteRun, TestResult
from tools.conformance.scenarios import DEFAULT, NO_AUTO_CREATION, Scenario, running
from tools.conformance.workspace import SetupError, Workspace

NAME = "librdkafka"
TEST_SECONDS = 900.0
GRACE_SECONDS = 10.0


def run(
    workspace: Workspace,
    tests: Path,
    kafka: Path,
    *,
    only: list[str],
    without: list[str],
    address: str | None,
    quick: bool,
    jobs: int,
    report: Callable[[TestResult], None],
) -> SuiteRun:
    listed = TestList.load()
    listed.check_complete(tests)
    batches = [
        batch for batch in listed.batches if (not only or _named(batch, only)) and not _named(batch, without)
    ]
    if address is not None:
        batches = [batch for batch in batches if batch.scenario == DEFAULT]
    results: list[TestResult] = []
    with ExitStack() as stack:
        scenarios = {
            name: Scenario(broker=None, address=address)
            if address is not None
            else stack.enter_context(running(workspace, NAME, name))
            for name in {batch.scenario for batch in batches}
        }
        runner = _Runner(workspace, tests, kafka, quick)
        pool = stack.enter_context(ThreadPoolExecutor(jobs))
        futures = [pool.submit(runner.run, batch, scenarios[batch.scenario]) for batch in batches]
        try:
            for future in as_completed(futures):
                for result in future.result():
                    results.append(result)
                    report(result)
                for scenario in scenarios.values():
                    if scenario.broker is not None and not scenario.broker.alive:
                        raise SetupError(f"the broker ended during the tests; see {scenario.broker.log}")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            runner.stop()
            raise
    return SuiteRun(
        suite=NAME,
        version=library_version(tests),
        results=tuple(sorted(results, key=lambda each: (each.group, each.name))),
        excluded=listed.excluded,
    )


def _named(batch: Batch, words: list[str]) -> bool:
    return any(word in batch.label(test) for word in words for test in batch.tests)


class _Runner:
    def __init__(self, workspace: Workspace, tests: Path, kafka: Path, quick: bool) -> None:
        self._workspace = workspace
        self._tests = tests
        self._quick = quick
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._kafka_path = kafka

    def run(self, batch: Batch, scenario: Scenario) -> list[TestResult]:
        if batch.java and missing_for_java():
            why = f"needs {', '.join(missing_for_java())}"
            return [
                TestResult(name=test, outcome=Outcome.SKIPPED, seconds=0.0, detail=why)
                for test in batch.tests
            ]
        configuration = self._workspace.logs / f"librdkafka-{batch.id}.conf"
        properties = {
            "bootstrap.servers": scenario.address,
            "test.timeout.multiplier": str(batch.patience),
            **scenario.client,
        }
        configuration.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        log = self._workspace.logs / f"librdkafka-{batch.id}.log"
        overrun = self._execute(self._command(batch), self._environment(batch, configuration, scenario), log)
        results = results_of(log.read_text(errors="replace"), batch.tests, overrun)
        return [replace(each, name=batch.label(each.name), group=batch.group) for each in results]

    def stop(self) -> None:
        for process in list(self._processes):
            _kill(process, signal.SIGKILL)

    def _command(self, batch: Batch) -> list[str]:
        return [
            *("./test-runner", "-p1", "-L"),
            *("-s", NO_AUTO_CREATION if batch.scenario == NO_AUTO_CREATION else DEFAULT),
            *(() if batch.sockem else ("-E",)),
            *(("-Q",) if self._quick else ()),
        ]

    def _environment(self, batch: Batch, configuration: Path, scenario: Scenario) -> dict[str, str]:
        environment = os.environ | {
            "TESTS": batch.number,
            "TEST_KAFKA_VERSION": batch.version,
            "TEST_CONSUMER_GROUP_PROTOCOL": batch.protocol,
            "RDKAFKA_TEST_CONF": str(configuration.absolute()),
            "LD_LIBRARY_PATH": "../src:../src-cpp",
            "KAFKA_PATH": str(self._kafka_path.absolute()),
            "BROKERS": scenario.address,
            **scenario.environment,
        }
        if batch.part:
            environment["SUBTESTS"] = f"{batch.part}:"  # matched in "function:line: what it does"
        environment.pop("CI", None)  # the runner would take it as leave to be slow
        return environment

    def _execute(self, command: list[str], environment: dict[str, str], log: Path) -> str:
        """Empty, or why the process had to be ended."""
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=self._tests,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.add(process)
        try:
            process.wait(TEST_SECONDS)
            return ""
        except subprocess.TimeoutExpired:
            _kill(process, signal.SIGINT)  # the runner then prints its summary
            try:
                process.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                _kill(process, signal.SIGKILL)
                process.wait()
            return f"not finished after {TEST_SECONDS:.0f} s"
        finally:
            self._processes.discard(process)


def _kill(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return
