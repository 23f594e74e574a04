"""Conditions mean what they mean in SQLite, the unknown ones among them."""

from dataclasses import dataclass

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from posthouse.broker.filters.sql import compile_sql
from tests.broker.filters.oracle import NAMES, Oracle
from tests.examples import examples

oracle = Oracle()


@dataclass(frozen=True, slots=True)
class Said:
    """One condition in both languages."""

    ours: str
    sqlite: str


texts = st.one_of(
    st.text("ab%_'é", max_size=4),
    st.sampled_from(
        ["1", "10", "-2.5", "1e1", "007", "9007199254740993", "true", "FALSE", "", ".5", "1_0", " 1"]
    ),
)
names = st.sampled_from(NAMES)
numbers = st.one_of(
    st.integers(-12, 12).map(str),
    st.sampled_from(["0.5", "-2.5", ".5", "10.", "1e1", "9007199254740992", "9007199254740993"]),
)
equalities = st.sampled_from(["=", "<>"])
comparators = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
negations = st.sampled_from(["", "NOT "])


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@st.composite
def comparisons(draw: st.DrawFn) -> Said:
    name, other = draw(names), draw(names)
    match draw(st.integers(0, 5)):
        case 0:
            rest = f"{draw(comparators)} {draw(numbers)}"
            return Said(f"{name} {rest}", f"number_{name} {rest}")
        case 1:
            rest = f"{draw(equalities)} {quoted(draw(texts))}"
            return Said(f"{name} {rest}", f"text_{name} {rest}")
        case 2:
            rest = f"{draw(equalities)} {draw(st.sampled_from(['TRUE', 'FALSE']))}"
            return Said(f"{name} {rest}", f"truth_{name} {rest}")
        case 3:
            sign = draw(equalities)
            return Said(f"{name} {sign} {other}", f"text_{name} {sign} text_{other}")
        case 4:
            sign = draw(st.sampled_from(["<", "<=", ">", ">="]))
            return Said(f"{name} {sign} {other}", f"number_{name} {sign} number_{other}")
        case _:
            number, sign = draw(numbers), draw(comparators)
            return Said(f"{number} {sign} {name}", f"{number} {sign} number_{name}")


@st.composite
def predicates(draw: st.DrawFn) -> Said:
    name, negation = draw(names), draw(negations)
    match draw(st.integers(0, 7)):
        case 0:
            rest = f"IS {negation}NULL"
            return Said(f"{name} {rest}", f"text_{name} {rest}")
        case 1:
            rest = f"{negation}BETWEEN {draw(numbers)} AND {draw(numbers)}"
            return Said(f"{name} {rest}", f"number_{name} {rest}")
        case 2:
            rest = f"{negation}IN ({', '.join(map(quoted, draw(st.lists(texts, min_size=1, max_size=3))))})"
            return Said(f"{name} {rest}", f"text_{name} {rest}")
        case 3:
            rest = f"{negation}LIKE {quoted(draw(st.text('ab%_', max_size=6)))}"
            return Said(f"{name} {rest}", f"text_{name} {rest}")
        case 4:
            pattern = "".join(
                draw(st.lists(st.sampled_from(["a", "b", "%", "_", "!%", "!_", "!!"]), max_size=6))
            )
            rest = f"{negation}LIKE {quoted(pattern)} ESCAPE '!'"
            return Said(f"{name} {rest}", f"text_{name} {rest}")
        case 5:
            text = draw(texts)
            return Said(
                f"{name} {negation}CONTAINS {quoted(text)}", f"{negation}instr(text_{name}, {quoted(text)})"
            )
        case 6:
            text = quoted(draw(texts))
            begins = f"substr(text_{name}, 1, length({text})) = {text}"
            return Said(f"{name} {negation}STARTSWITH {text}", f"{negation}{begins}")
        case _:
            text = quoted(draw(texts.filter(bool)))
            ends = f"substr(text_{name}, -length({text})) = {text}"
            return Said(f"{name} {negation}ENDSWITH {text}", f"{negation}{ends}")


properties_alone = names.map(lambda name: Said(name, f"truth_{name}"))
constants = st.sampled_from(["TRUE", "FALSE", "1 = 1", "2 < 1"]).map(lambda text: Said(text, text))


def combined(parts: st.SearchStrategy[Said]) -> st.SearchStrategy[Said]:
    """With parentheses or without, so that the precedence of operators is compared, too."""
    joined = st.builds(
        lambda left, word, right: Said(
            f"{left.ours} {word} {right.ours}", f"{left.sqlite} {word} {right.sqlite}"
        ),
        parts,
        st.sampled_from(["AND", "OR"]),
        parts,
    )
    negated = parts.map(lambda part: Said(f"NOT {part.ours}", f"NOT {part.sqlite}"))
    enclosed = parts.map(lambda part: Said(f"({part.ours})", f"({part.sqlite})"))
    return joined | negated | enclosed


simple = st.one_of(comparisons(), predicates(), properties_alone, constants)
conditions = st.recursive(simple, combined, max_leaves=12)
messages = st.dictionaries(st.sampled_from([name for name in NAMES if name != "TAGS"]), texts, max_size=3)
tags = st.none() | texts


def check(said: Said, properties: dict[str, str], tag: str | None) -> None:
    value = oracle.value(said.sqlite, properties, tag)
    assert compile_sql(said.ours).matches(properties, tag) is (value is True), said
    assert compile_sql(f"NOT ({said.ours})").matches(properties, tag) is (value is False), said


@settings(max_examples=examples(1200))
@given(simple, messages, tags)
def test_single_conditions(said: Said, properties: dict[str, str], tag: str | None) -> None:
    check(said, properties, tag)


@settings(max_examples=examples(700))
@given(conditions, messages, tags)
def test_conditions(said: Said, properties: dict[str, str], tag: str | None) -> None:
    check(said, properties, tag)


@pytest.mark.parametrize(
    ("condition", "value"),
    [("number_a > 5", True), ("text_b = 'x'", False), ("truth_c", None), ("text_TAGS = 't'", True)],
)
def test_the_oracle_knows_all_three_values(condition: str, value: bool | None) -> None:
    assert oracle.value(condition, {"a": "10", "b": "y"}, "t") is value
