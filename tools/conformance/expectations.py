"""Which failures are known, and how a run compares with that."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from tools.conformance.results import Outcome, SuiteRun, TestResult
from tools.conformance.rocketmq.differences import known_differences

KNOWN = Path(__file__).with_name("known_failures.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    unexpected: tuple[TestResult, ...]
    """Failed, and nobody knew."""
    known: tuple[tuple[TestResult, str], ...]
    """Failed, with the reason."""
    repaired: tuple[str, ...]
    """Known to fail, and passed: to be taken off the list."""

    @property
    def good(self) -> bool:
        return not self.unexpected


def known_failures(suite: str) -> dict[str, str]:
    reasons: dict[str, str] = tomllib.loads(KNOWN.read_text()).get(suite, {})
    return reasons | {name: each.why for name, each in known_differences(suite).items()}


def judge(run: SuiteRun) -> Verdict:
    reasons = known_failures(run.suite)
    failed = [each for each in run.results if each.outcome is Outcome.FAILED]
    return Verdict(
        unexpected=tuple(each for each in failed if each.name not in reasons),
        known=tuple((each, reasons[each.name]) for each in failed if each.name in reasons),
        repaired=tuple(
            each.name for each in run.results if each.outcome is Outcome.PASSED and each.name in reasons
        ),
    )
