"""Expressions over topic names: what matches, what is refused, and that none can run away."""

import re
import time

import hypothesis.strategies as st
import pytest
from hypothesis import given

from posthouse.broker.groups.patterns import MAX_LENGTH, TopicPattern
from posthouse.model.errors import InvalidPattern

NAMES = [
    "",
    "a",
    "b",
    "aa",
    "ab",
    "aab",
    "abab",
    "orders",
    "orders-1",
    "orders.eu",
    "x_1",
    "a1",
    "1",
    "-",
    "]",
    "^",
]


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "a|b",
        "a*",
        "(ab)+",
        "a?b",
        "orders.*",
        r"orders\.eu",
        "^orders$",
        "^a|b$",
        "(^a)b",
        "a^",
        "$",
        "^$",
        "[a-c]+",
        "[^a]+",
        "[]a]",
        "[^]a]",
        r"[\d]+",
        r"\w+",
        r"orders-\d",
        "a{2}",
        "a{1,2}",
        "a{1,}b",
        "(?:a|b)*",
        "(?P<name>a)b",
        "a+?b",
        "a|",
        "()",
        "{",
        "a{x}",
        ".",
        "[a|b]",
        "[.]",
    ],
)
def test_matches_as_python_does(text: str) -> None:
    expected = re.compile(text)
    pattern = TopicPattern(text)
    for name in NAMES:
        assert pattern.matches(name) == (expected.fullmatch(name) is not None), name


@pytest.mark.parametrize(
    "text",
    [
        "(",
        ")",
        "a)",
        "[",
        "[a",
        "*",
        "+a",
        "a**",
        "a{2}{3}",
        "a{3,2}",
        "a{2000}",
        r"\1",
        r"(a)\1",
        "(?=a)",
        "(?<!a)b",
        "\\",
        r"\b",
        "[b-a]",
        "(?i)a",
        "(" * 60 + ")" * 60,
        "((a{100}){100}){100}",
        "a" * (MAX_LENGTH + 1),
    ],
)
def test_refused(text: str) -> None:
    with pytest.raises(InvalidPattern):
        TopicPattern(text)


def test_none_runs_away() -> None:
    started = time.perf_counter()
    for text in ("(a*)*b", "(a|a)*b", "(a|aa)+b", ".*.*.*.*.*.*.*x", "(.*a){20}"):
        assert not TopicPattern(text).matches("a" * 248 + "c")
    assert time.perf_counter() - started < 2.0


simple = st.recursive(
    st.sampled_from(["a", "b", ".", "[ab]", "^", "$"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda both: f"(?:{both[0]}|{both[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{0,2}"])).map(
            lambda both: f"(?:{both[0]}){both[1]}"
        ),
    ),
    max_leaves=6,
)


@given(text=simple, name=st.text("abc", max_size=6))
def test_agrees_with_python(text: str, name: str) -> None:
    assert TopicPattern(text).matches(name) == (re.fullmatch(text, name) is not None)
