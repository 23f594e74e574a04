"""Any text is either compiled or refused, and a compiled filter answers for any message."""

import hypothesis.strategies as st
from hypothesis import given, settings

from posthouse.broker.filters.sql import compile_sql
from posthouse.broker.filters.tags import compile_tags
from posthouse.model.errors import InvalidFilter
from tests.examples import examples

words = st.sampled_from(
    [
        *("a", "b", "TAGS", "5", "-2.5", "1e3", "9e999", "'x'", "'it''s'", "TRUE", "false", "'%_!'", "'!'"),
        *("AND", "OR", "NOT", "IN", "BETWEEN", "IS", "NULL", "LIKE", "ESCAPE", "CONTAINS", "ENDSWITH"),
        *("(", ")", ",", "=", "<>", "<", ">=", "+", "-", "--", "/*", "*/", "'", "!", "."),
    ]
)
soup = st.lists(words, max_size=14).map(" ".join)
mutated = st.builds(
    lambda text, place, inserted: (
        text[: place % (len(text) + 1)] + inserted + text[place % (len(text) + 1) :]
    ),
    st.sampled_from(
        [
            "a > 5 AND (b = 'x' OR NOT c IN ('p', 'q'))",
            "a BETWEEN 1 AND b OR TAGS LIKE 'a!_%' ESCAPE '!'",
            "NOT (a IS NOT NULL AND b CONTAINS 'x') OR vip",
        ]
    ),
    st.integers(0, 100),
    words | st.text(max_size=3),
)
messages = st.dictionaries(st.sampled_from(["a", "b", "c", "vip"]), st.text() | words)


@settings(max_examples=examples(1200))
@given(soup | mutated | st.text() | st.text(st.characters(codec=None)), messages, st.none() | st.text())
def test_sql(expression: str, properties: dict[str, str], tag: str | None) -> None:
    try:
        compiled = compile_sql(expression)
    except InvalidFilter as error:
        assert 1 <= error.position <= len(expression) + 1
        assert str(error).isprintable()
    else:
        assert compiled.matches(properties, tag) in (True, False)
        if compiled.matches(properties, tag):
            assert not compile_sql(f"NOT ({expression}\n)").matches(properties, tag)


@given(st.text() | st.text("ab| *"), st.none() | st.text())
def test_tags(expression: str, tag: str | None) -> None:
    try:
        compiled = compile_tags(expression)
    except InvalidFilter as error:
        assert error.position == 1
        assert not expression.replace("||", "").strip()
    else:
        assert compiled.matches({}, tag) in (True, False)
