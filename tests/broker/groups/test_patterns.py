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


TABLE: dict[str, set[str]] = {
    # Every construct of RE2's syntax that can tell topic names apart, with the names that it matches.
    ".": {"a", "b", "1", "-", "]", "^"},
    "[xyz]_1": {"x_1"},
    "[^a-z]": {"1", "-", "]", "^"},
    r"\d": {"1"},
    r"\D": {"a", "b", "-", "]", "^"},
    r"\w\S": {"aa", "ab", "a1"},
    r"\W": {"-", "]", "^"},
    r"[\w.-]+": {
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
    },
    "[[:alpha:]]+": {"a", "b", "aa", "ab", "aab", "abab", "orders"},
    "[[:^alpha:]]": {"1", "-", "]", "^"},
    "[^[:alpha:]]": {"1", "-", "]", "^"},
    "[[:alpha:][:digit:]]{2}": {"aa", "ab", "a1"},
    "[[:lower:]][[:digit:]]": {"a1"},
    "[[:punct:]]": {"-", "]", "^"},
    "[[:xdigit:]]": {"a", "b", "1"},
    "[[:word:]]{3}": {"aab", "x_1"},
    r"\pL": {"a", "b"},
    r"\p{L}\p{N}": {"a1"},
    r"\PL": {"1", "-", "]", "^"},
    r"\p{Lu}": set(),
    r"\p{Latin}{4}": {"abab"},
    r"[\pL\pN]{2}": {"aa", "ab", "a1"},
    "ab": {"ab"},
    "a|b": {"a", "b"},
    "a*": {"", "a", "aa"},
    "(ab)+": {"ab", "abab"},
    "a?b": {"b", "ab"},
    "a{2}": {"aa"},
    "a{1,2}b": {"ab", "aab"},
    "a{1,}b": {"ab", "aab"},
    "a+?b": {"ab", "aab"},
    "(?P<name>a)b": {"ab"},
    "(?<name>a)b": {"ab"},
    "(?:a|b)": {"a", "b"},
    "(?i)ORDERS": {"orders"},
    "(?i:ORD)ers": {"orders"},
    "(?i:ORD)ERS": set(),
    "(?i)(?-i)ORDERS": set(),
    "(?s).rders": {"orders"},
    "(?s:.)rders": {"orders"},
    "(?m)^orders$": {"orders"},
    "(?U)a+": {"a", "aa"},
    r"\Qorders.eu\E": {"orders.eu"},
    r"orders\Q.\Eeu": {"orders.eu"},
    r"\Q^": {"^"},
    r"^orders$": {"orders"},
    r"\Aorders\z": {"orders"},
    "^$": {""},
    r"orders\b.*": {"orders", "orders-1", "orders.eu"},
    r"orders\B.*": set(),
    r"\x61": {"a"},
    r"\x{62}": {"b"},
    r"\141": {"a"},
    r"\^": {"^"},
    r"orders\.eu": {"orders.eu"},
    "[]]": {"]"},
    r"[\]^-]": {"]", "^", "-"},
    "{": set(),
    "a{,2}": set(),
    "é|a": {"a"},
}


@pytest.mark.parametrize("text", TABLE)
def test_the_syntax_of_re2(text: str) -> None:
    pattern = TopicPattern(text)
    assert {name for name in NAMES if pattern.matches(name)} == TABLE[text]


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
        "a{1001}",
        r"\1",
        r"(a)\1",
        "(?=a)",
        "(?<!a)b",
        "(?>a)",
        "(?x)a",
        "(?i",
        "(?P=name)",
        "\\",
        r"\Z",
        r"\h",
        r"\p{Nothing}",
        "[[:nothing:]]",
        "[b-a]",
        "((a{100}){100}){100}",
        r"\pL{1000}",
        "a" * (MAX_LENGTH + 1),
    ],
)
def test_refused(text: str) -> None:
    with pytest.raises(InvalidPattern, match="expression"):
        TopicPattern(text)


def test_none_runs_away() -> None:
    started = time.process_time()
    for text in ("(a*)*b", "(a|a)*b", "(a|aa)+b", ".*.*.*.*.*.*.*x", "(.*a){20}"):
        assert not TopicPattern(text).matches("a" * 248 + "c")
    assert time.process_time() - started < 2.0


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
