"""LIKE against the obvious recursion."""

from functools import cache

import hypothesis.strategies as st
from hypothesis import given, settings

from posthouse.broker.filters.patterns import matcher, parse_pattern
from tests.examples import examples


def is_like(text: str, pattern: str) -> bool:
    @cache
    def rest(read: int, matched: int) -> bool:
        if matched == len(pattern):
            return read == len(text)
        if pattern[matched] == "%":
            return rest(read, matched + 1) or (read < len(text) and rest(read + 1, matched))
        return read < len(text) and pattern[matched] in ("_", text[read]) and rest(read + 1, matched + 1)

    return rest(0, 0)


@settings(max_examples=examples(1000))
@given(st.text("ab", max_size=14), st.text("ab%_", max_size=9))
def test_like(text: str, pattern: str) -> None:
    assert matcher(parse_pattern(pattern, None))(text) is is_like(text, pattern)


@settings(max_examples=examples(500))
@given(st.data(), st.text("ab\n🦊é", min_size=1, max_size=10))
def test_a_text_is_like_itself_with_parts_left_out(data: st.DataObject, text: str) -> None:
    parts = [data.draw(st.sampled_from([character, "_", "%", f"%{character}%"])) for character in text]
    assert matcher(parse_pattern("".join(parts), None))(text)


@given(st.text("ab%_!"))
def test_escaped_characters_stand_for_themselves(text: str) -> None:
    escaped = "".join(f"!{each}" if each in "%_!" else each for each in text)
    like = matcher(parse_pattern(escaped, "!"))
    assert like(text)
    assert not like(f"{text}a")
    other = text.replace("%", "a").replace("_", "b")
    assert like(other) is (other == text)


def test_wildcards_across_words_of_the_machine() -> None:
    """More characters than an integer of 64 bits has bits."""
    like = matcher(parse_pattern("%" + "a_" * 90 + "c%", None))
    assert like("xx" + "ab" * 90 + "c")
    assert like("ab" * 100 + "cx")
    assert not like("ab" * 89 + "c")
    assert not like("ab" * 100)
