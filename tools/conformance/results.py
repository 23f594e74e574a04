"""What one test of a suite did."""

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class TestResult:
    __test__ = False  # pytest collects classes that are called Test…

    name: str
    outcome: Outcome
    seconds: float
    detail: str = ""
    """One line: why it failed or was skipped."""
    group: str = "tests"
    """What it is counted with: a test that is run in parts, or a second time, is not one more test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRun:
    """All results of one suite, and which of its tests were left out with which reason."""

    suite: str
    version: str
    results: tuple[TestResult, ...]
    excluded: dict[str, str]

    @property
    def groups(self) -> list[str]:
        return list(dict.fromkeys(each.group for each in self.results))

    def count(self, outcome: Outcome, group: str | None = None) -> int:
        return sum(each.outcome is outcome for each in self.results if group in (None, each.group))
