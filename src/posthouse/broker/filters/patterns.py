"""Patterns of LIKE, matched in time linear in the text.

`%` splits a pattern into segments of fixed length. Taking the leftmost place of each segment in turn finds a
match if there is one: no place is tried twice, as a regular expression would. A segment with `_` is searched
with Shift-And: bit i of a number says whether the segment's first i + 1 characters end at the current
character.
"""

from collections.abc import Callable
from typing import TypeAlias

Segment: TypeAlias = tuple[str | None, ...]
"""Characters; None is `_`."""

Pattern: TypeAlias = tuple[Segment, ...]
"""The segments before, between and after each `%`."""


class WrongEscape(Exception):
    """The escape character is followed by neither `%`, `_` nor itself."""


def parse_pattern(text: str, escape: str | None) -> Pattern:
    segments: list[Segment] = []
    segment: list[str | None] = []
    characters = iter(text)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None or escaped not in ("%", "_", escape):
                raise WrongEscape
            segment.append(escaped)
        elif character == "%":
            segments.append(tuple(segment))
            segment.clear()
        else:
            segment.append(None if character == "_" else character)
    return (*segments, tuple(segment))


def matcher(pattern: Pattern) -> Callable[[str], bool]:
    """A function that says whether all of a text is like the pattern."""
    first, *others = [_searched(segment) for segment in pattern]
    if not others:
        return lambda text: len(text) == first.length and first.is_at(text, 0)
    *middle, last = others
    shortest = first.length + last.length

    def matches(text: str) -> bool:
        end = len(text) - last.length
        if len(text) < shortest or not first.is_at(text, 0) or not last.is_at(text, end):
            return False
        position = first.length
        for segment in middle:
            position = segment.find(text, position, end)
            if position < 0:
                return False
            position += segment.length
        return True

    return matches


class _Text:
    """A segment without `_`."""

    __slots__ = ("_text", "length")

    def __init__(self, text: str) -> None:
        self._text = text
        self.length = len(text)

    def is_at(self, text: str, position: int) -> bool:
        return text.startswith(self._text, position)

    def find(self, text: str, start: int, end: int) -> int:
        return text.find(self._text, start, end)


class _Wildcards:
    """A segment with `_`."""

    __slots__ = ("_any", "_characters", "_last", "length")

    def __init__(self, segment: Segment) -> None:
        self.length = len(segment)
        self._last = 1 << (self.length - 1)
        self._any = sum(1 << place for place, character in enumerate(segment) if character is None)
        """The places where every character matches; _characters has those of one character, and these."""
        self._characters: dict[str, int] = {}
        for place, character in enumerate(segment):
            if character is not None:
                self._characters[character] = self._characters.get(character, self._any) | 1 << place

    def is_at(self, text: str, position: int) -> bool:
        return self.find(text, position, position + self.length) >= 0

    def find(self, text: str, start: int, end: int) -> int:
        matched, last, anything, characters = 0, self._last, self._any, self._characters
        for place, character in enumerate(text[start:end], start):
            matched = (matched << 1 | 1) & characters.get(character, anything)
            if matched & last:
                return place - self.length + 1
        return -1


def _searched(segment: Segment) -> _Text | _Wildcards:
    texts = [character for character in segment if character is not None]
    return _Text("".join(texts)) if len(texts) == len(segment) else _Wildcards(segment)
