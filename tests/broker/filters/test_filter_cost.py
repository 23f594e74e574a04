"""What hostile expressions and messages cost: counted, not timed."""

import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

import pytest

from posthouse.broker.filters.limits import MAX_CONDITIONS, MAX_DEPTH, MAX_LENGTH, MAX_PATTERN_LENGTH
from posthouse.broker.filters.sql import compile_sql
from posthouse.model.errors import InvalidFilter
from tests.instructions import instructions


def compiled(expression: str) -> None:
    with suppress(InvalidFilter):
        compile_sql(expression)


def deepest(call: Callable[[], object]) -> int:
    """How many calls were on the stack at once."""
    depth = peak = 0

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal depth, peak
        depth += (event == "call") - (event == "return")
        peak = max(peak, depth)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(before)
    return peak


def nested(depth: int) -> str:
    return "(a = 1 OR b = 'x' AND NOT " * depth + "vip" + ")" * depth


HOSTILE = {
    "parentheses": "(",
    "closed": ")",
    "nots": "NOT ",
    "nots and parentheses": "NOT (",
    "minus": "- ",
    "comment": "/*",
    "stars": "/**",
    "quotes": "'",
    "open text": "''x",
    "digits": "1",
    "points": "1.",
    "exponents": "1e",
    "names": "a",
    "words": "a ",
    "comparisons": "a = ",
    "conditions": "a AND ",
    "list": "a IN ('x','x',",
    "spaces": " ",
}


@pytest.mark.parametrize("repeated", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_expressions_are_refused_or_compiled_without_a_deep_stack(repeated: str) -> None:
    expression = (repeated * MAX_LENGTH)[:MAX_LENGTH]
    assert deepest(lambda: compiled(expression)) < 400
    assert deepest(lambda: compiled(f"a = 1 AND {expression[10:]}")) < 400
    assert deepest(lambda: compiled(repeated * 100_000)) < 10


def test_the_deepest_filter_needs_few_calls() -> None:
    expression = nested(MAX_DEPTH)
    assert MAX_DEPTH < deepest(lambda: compiled(expression)) < 400
    deep = compile_sql(expression)
    assert MAX_DEPTH < deepest(lambda: deep.matches({"a": "2", "b": "x", "vip": "true"}, None)) < 200


@pytest.mark.parametrize("repeated", HOSTILE.values(), ids=HOSTILE.keys())
def test_compiling_costs_no_more_than_its_length(repeated: str) -> None:
    half, full = (repeated * (MAX_LENGTH // len(repeated) // parts) for parts in (8, 4))
    assert instructions(lambda: compiled(full)) < 2.2 * instructions(lambda: compiled(half)) + 500


PATTERNS = {
    "text": "%a" * 100,
    "text that is missing": "%a" * 100 + "b",
    "wildcards": "%a_" * 80,
    "wildcards, and text that is missing": "%a_" * 80 + "b%",
    "one long segment": f"%{'a_' * 100}b%",
    "only wildcards": "%_" * 120,
}


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS.keys())
def test_like_costs_no_more_than_the_text(pattern: str) -> None:
    assert len(pattern) <= MAX_PATTERN_LENGTH
    like = compile_sql(f"p LIKE '{pattern}'")
    half, full = {"p": "a" * 10_000}, {"p": "a" * 20_000}
    cost = instructions(lambda: like.matches(full, None))
    assert cost < 2.2 * instructions(lambda: like.matches(half, None)) + 500
    assert cost < 20 * (20_000 + len(pattern) * 10)


def test_a_list_costs_no_more_when_it_is_long() -> None:
    lists = (", ".join(f"'{number}'" for number in range(size)) for size in (3, 3_000))
    few, many = (compile_sql(f"a IN ({texts})") for texts in lists)
    message = {"a": "none of them"}
    assert instructions(lambda: many.matches(message, None)) == instructions(
        lambda: few.matches(message, None)
    )


def test_a_message_costs_no_more_than_the_conditions() -> None:
    half, full = (compile_sql(" OR ".join(["a > 5.5"] * (MAX_CONDITIONS // parts))) for parts in (2, 1))
    message = {"a": "1.25"}
    cost = instructions(lambda: full.matches(message, None))
    assert cost < 2.1 * instructions(lambda: half.matches(message, None))
    assert cost < 150 * MAX_CONDITIONS
