"""Numbers and truth values in the text of a property."""

import re
from math import isfinite

from posthouse.broker.filters.limits import MAX_NUMBER_LENGTH

# Each character can be matched in one way only, so a text that is no number costs no more than its length.
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_TRUTH = {"true": True, "false": False}


def number(text: str) -> int | float | None:
    """The number, or None if the text is none, or one that a double cannot hold.

    Integers stay exact: as doubles, neighbouring ids of 64 bits would be equal.
    """
    if len(text) > MAX_NUMBER_LENGTH:
        return None
    if text.isdigit() and text.isascii():
        return int(text)
    if not _NUMBER.fullmatch(text):
        return None
    if text[0] in "+-" and text[1:].isdigit():
        return int(text)
    value = float(text)
    return value if isfinite(value) else None


def truth(text: str) -> bool | None:
    return _TRUTH.get(text.lower()) if len(text) <= 5 else None
