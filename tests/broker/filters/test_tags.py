import pytest

from posthouse.broker.filters.filter import EVERYTHING
from posthouse.broker.filters.limits import MAX_LENGTH
from posthouse.broker.filters.tags import compile_tags
from posthouse.model.errors import InvalidFilter


@pytest.mark.parametrize("expression", ["", "*", "  ", " * "])
def test_star_and_nothing_are_everything(expression: str) -> None:
    assert compile_tags(expression) is EVERYTHING
    assert EVERYTHING.matches({}, None)
    assert EVERYTHING.matches({"TAGS": "b"}, "a")


@pytest.mark.parametrize("expression", ["a || b", "a||b", " a||  b ", "||a|| ||b", "b || a || a"])
def test_any_of_the_tags(expression: str) -> None:
    compiled = compile_tags(expression)
    assert compiled.matches({}, "a")
    assert compiled.matches({}, "b")
    assert not compiled.matches({}, "c")


@pytest.mark.parametrize("tag", [None, "", "A", "ab", "a ", "a || b", "*"])
def test_only_exactly_these_tags(tag: str | None) -> None:
    assert not compile_tags("a || b").matches({"TAGS": "a"}, tag)


def test_a_single_bar_belongs_to_the_tag() -> None:
    compiled = compile_tags("a|b")
    assert compiled.matches({}, "a|b")
    assert not compiled.matches({}, "a")


def test_a_star_beside_other_tags_is_a_tag() -> None:
    compiled = compile_tags("a || *")
    assert compiled.matches({}, "*")
    assert not compiled.matches({}, "b")


@pytest.mark.parametrize("expression", ["||", " || || "])
def test_bars_alone_are_invalid(expression: str) -> None:
    with pytest.raises(InvalidFilter, match=r"at character 1: expected a tag beside \|\|"):
        compile_tags(expression)


def test_length_is_limited() -> None:
    assert compile_tags("a" * MAX_LENGTH).matches({}, "a" * MAX_LENGTH)
    with pytest.raises(InvalidFilter, match="at most 32768 characters, found 32769"):
        compile_tags("a" * (MAX_LENGTH + 1))
