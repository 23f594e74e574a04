"""What suites written for pytest have in common: a source package, an environment of their own, a run."""

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tools.conformance.results import Outcome, TestResult
from tools.conformance.workspace import SetupError, Workspace

TEST_SECONDS = 120


def source_distribution(workspace: Workspace, package: str, version: str) -> Path:
    """The archive, from the Python package index."""
    pattern = f"{package.replace('-', '_')}-{version}.tar.*"
    found = sorted(workspace.downloads.glob(pattern))
    if found:
        return found[0]
    requirement = f"{package}=={version}"
    workspace.run(
        f"download-{package}",
        [
            *(sys.executable, "-m", "pip", "download", "--disable-pip-version-check"),
            *("--no-deps", "--no-binary", ":all:", "--dest", str(workspace.downloads), requirement),
        ],
    )
    found = sorted(workspace.downloads.glob(pattern))
    if not found:
        raise SetupError(f"pip fetched no source distribution of {requirement}")
    return found[0]


def virtual_environment(
    workspace: Workspace, directory: Path, requirements: list[str], say: Callable[[str], None]
) -> None:
    """Its own, so that the suite's needs do not become the project's."""
    ready = directory / "venv" / "ready"
    if ready.exists():
        return
    say("installing what the suite needs")
    shutil.rmtree(directory / "venv", ignore_errors=True)
    workspace.run(f"venv-{directory.name}", [sys.executable, "-m", "venv", str(directory / "venv")])
    workspace.run(
        f"install-{directory.name}",
        [
            *(str(directory / "venv/bin/python"), "-m", "pip", "install", "--disable-pip-version-check"),
            *(*requirements, "pytest", "pytest-timeout"),
        ],
    )
    ready.touch()


@dataclass(frozen=True, slots=True, kw_only=True)
class PytestSuite:
    workspace: Workspace
    directory: Path
    environment: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()

    def run(
        self, name: str, selection: list[str], report: Callable[[TestResult], None]
    ) -> dict[str, TestResult]:
        """What the selected tests did, by the name that pytest selects them with."""
        logs = self.workspace.logs.absolute()
        outcomes, log = logs / f"{name}.xml", logs / f"{name}.log"
        outcomes.unlink(missing_ok=True)
        directory = self.directory.absolute()
        command = [
            *(str(directory / "venv/bin/python"), "-m", "pytest", "-v", *selection),
            *("-o", "addopts=", "-o", "log_level=WARNING", "-p", "no:cacheprovider", "--tb=short"),
            *(
                "--rootdir=.",
                f"--timeout={TEST_SECONDS}",
                "--timeout-method=signal",
                f"--junitxml={outcomes}",
            ),
            *self.options,
        ]
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=os.environ | {"PYTHONUNBUFFERED": "1"} | self.environment,
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
        return dict(_results(outcomes, directory))


def matching(only: list[str], without: str = "") -> list[str]:
    """pytest's arguments that select tests with one of these words in their names, and without that one."""
    conditions = [f"({' or '.join(only)})"] if only else []
    if without:
        conditions.append(f"not {without}")
    return ["-k", " and ".join(conditions)] if conditions else []


def _progress(line: str) -> TestResult | None:
    """A line of `pytest -v`, such as `test/integration/test_x.py::test_y PASSED   [ 10%]`."""
    name, _, rest = line.partition(" ")
    words = rest.split()
    if "::" not in name or not words or words[0].lower() not in (*Outcome, "error"):
        return None
    outcome = Outcome.FAILED if words[0] == "ERROR" else Outcome(words[0].lower())
    return TestResult(name=name.partition("::")[2], outcome=outcome, seconds=0.0)


def _results(outcomes: Path, directory: Path) -> Iterator[tuple[str, TestResult]]:
    for case in ElementTree.parse(outcomes).iter("testcase"):
        outcome, detail = Outcome.PASSED, ""
        for problem in case:
            if problem.tag in ("failure", "error"):
                outcome, detail = Outcome.FAILED, problem.get("message", "")
            elif problem.tag == "skipped":
                outcome, detail = Outcome.SKIPPED, problem.get("message", "")
        file, classes = _place(case.get("classname", ""), directory)
        name = "::".join([*classes, case.get("name", "")])
        result = TestResult(
            name=name,
            outcome=outcome,
            seconds=float(case.get("time", "0")),
            detail=detail.partition("\n")[0],
        )
        yield f"{file}::{name}", result


def _place(dotted: str, directory: Path) -> tuple[str, list[str]]:
    """The file of a test and the classes around it; `a.b.TestC` does not say where one ends."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        file = "/".join(parts[:length]) + ".py"
        if (directory / file).exists():
            return file, parts[length:]
    return dotted, []
