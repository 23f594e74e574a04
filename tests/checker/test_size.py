"""Histories may be long: the work grows with them, not with their square."""

import sys
from types import FrameType
from typing import Any

from tests.checker.history import History
from tests.checker.judge import check
from tests.checker.model.generate import generate


def test_a_hundred_thousand_operations() -> None:
    report = check(generate(1, 100_000, crashes=0.0005))
    assert report.clean, report
    assert report.counts.total() >= 100_000


def test_twice_the_history_is_about_twice_the_work() -> None:
    small, large = (_lines_run(generate(1, size, crashes=0.001)) for size in (10_000, 20_000))
    assert large < 2.5 * small


def _lines_run(history: History) -> int:
    """How many lines of Python the check runs; unlike time, that is the same on every machine."""
    lines = 0

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        check(history)
    finally:
        sys.settrace(before)
    return lines
