"""What librdkafka's test runner prints, read back as results.

A test that ends says `Test NAME PASSED`, or `### Test "NAME" failed at FILE:LINE:FUNCTION() …: ###` with the
reason on the next line. A run in which everything went well, or that was interrupted, closes with a summary:
`| NAME | STATE | 1.234s | reason`. After a failure the process aborts, often without one.
"""

import re
from collections.abc import Iterator

from tools.conformance.results import Outcome, TestResult

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_SUMMARY = re.compile(r"^\|\s*(\S+)\s*\|\s*(\w+)\s*\|\s*([\d.]+)s\s*\|(.*)$")
_PASSED = re.compile(r"/\s*([\d.]+)s\] =+ Test (\S+) PASSED")
_FAILED = re.compile(r'^### Test "([^" ]+)[^"]*" failed at (\S+)')
_TIME = re.compile(r"^\[(\S+)\s*/\s*([\d.]+)s\]")

_STATES = {"PASSED": Outcome.PASSED, "FAILED": Outcome.FAILED, "SKIPPED": Outcome.SKIPPED}


def results_of(text: str, tests: tuple[str, ...], overrun: str) -> Iterator[TestResult]:
    """One result for each test that was asked for, whether the output mentions it or not."""
    found: dict[str, TestResult] = {}
    last_seen: dict[str, float] = {}
    lines = _COLOUR.sub("", text).splitlines()
    for number, line in enumerate(lines):
        if timed := _TIME.match(line):
            last_seen[timed[1]] = float(timed[2])
        if passed := _PASSED.search(line):
            found[passed[2]] = TestResult(name=passed[2], outcome=Outcome.PASSED, seconds=float(passed[1]))
        elif failed := _FAILED.match(line):
            reason = lines[number + 1] if number + 1 < len(lines) else ""
            found.setdefault(failed[1], _failure(failed[1], last_seen, f"{failed[2]}: {reason}"))
        elif summary := _SUMMARY.match(line):
            name, state, seconds, detail = summary.groups()
            outcome = _STATES.get(state, Outcome.FAILED)
            found.setdefault(
                name,
                TestResult(name=name, outcome=outcome, seconds=float(seconds), detail=detail.strip()),
            )
    for test in tests:
        yield found.get(test) or _failure(test, last_seen, overrun or _last_words(lines))


def _failure(name: str, last_seen: dict[str, float], detail: str) -> TestResult:
    return TestResult(
        name=name, outcome=Outcome.FAILED, seconds=last_seen.get(name, 0.0), detail=detail.strip()
    )


def _last_words(lines: list[str]) -> str:
    return "ended without a result: " + next((line for line in reversed(lines) if line.strip()), "no output")
