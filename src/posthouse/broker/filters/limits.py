"""Bounds of what a filter may cost: to compile, and for every message."""

from posthouse.model.errors import InvalidFilter

MAX_LENGTH = 32_768
"""Of an expression, in characters."""

MAX_CONDITIONS = 1_000
"""Of one expression: comparisons, IN, LIKE and the like. A message may be compared with each of them."""

MAX_DEPTH = 50
"""Of parentheses. The parser is recursive, with five calls for each; Python allows a thousand."""

MAX_SEARCHES = 100
"""CONTAINS of one expression: each may read a whole property."""

MAX_PATTERNS = 20
"""LIKEs of one expression: one with _ reads a property character by character, at about 100 ns each."""

MAX_PATTERN_LENGTH = 256
"""Of one LIKE, in characters."""

MAX_NUMBER_LENGTH = 100
"""Of a number, in characters: converting decimal digits costs the square of their count."""


def check_length(expression: str) -> None:
    length = len(expression)
    if length > MAX_LENGTH:
        raise InvalidFilter(MAX_LENGTH + 1, f"at most {MAX_LENGTH} characters", f"{length} characters")
