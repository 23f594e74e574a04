"""Types of settings: parsing, limits and normal form.

Texts are parsed as in Kafka: without surrounding space, numbers in ASCII digits, booleans in upper or lower
case.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Any

INT32_MAX = 2**31 - 1
INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1

_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


class ValueKind(Enum):
    BOOLEAN = auto()
    STRING = auto()
    INT = auto()
    LONG = auto()
    DOUBLE = auto()
    LIST = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueType:
    kind: ValueKind
    parse: Callable[[str], Any]
    """Raises ValueError for an invalid text."""

    def normalized(self, text: str) -> str:
        """The text as it is shown, with the same value. A list keeps its order."""
        if self.kind is ValueKind.LIST:
            return ",".join(items(text))
        return written(self.parse(text))


def written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def items(text: str) -> list[str]:
    """The items of a list with commas; the empty text is the empty list."""
    return [item.strip() for item in text.split(",")] if text.strip() else []


def int64(low: int) -> ValueType:
    return ValueType(kind=ValueKind.LONG, parse=lambda text: _in_range(text, low, INT64_MAX))


def int32(low: int, high: int = INT32_MAX, *, or_else: int | None = None) -> ValueType:
    """`or_else` is a special value outside the range."""

    def parse(text: str) -> int:
        return or_else if or_else is not None and text.strip() == str(or_else) else _in_range(text, low, high)

    return ValueType(kind=ValueKind.INT, parse=parse)


def _in_range(text: str, low: int, high: int) -> int:
    digits = text.strip()
    if not _INTEGER.fullmatch(digits):
        raise ValueError("must be a whole number")
    value = int(digits) if len(digits) <= 20 else high + 1
    if not low <= value <= high:
        raise ValueError(f"must be between {low} and {high}")
    return value


def boolean() -> ValueType:
    def parse(text: str) -> bool:
        known = {"true": True, "false": False}.get(text.strip().lower())
        if known is None:
            raise ValueError("must be true or false")
        return known

    return ValueType(kind=ValueKind.BOOLEAN, parse=parse)


def choice(kind: type[StrEnum]) -> ValueType:
    def parse(text: str) -> StrEnum:
        try:
            return kind(text.strip())
        except ValueError:
            raise ValueError(f"must be one of {', '.join(kind)}") from None

    return ValueType(kind=ValueKind.STRING, parse=parse)


def ratio() -> ValueType:
    def parse(text: str) -> float:
        if not _DECIMAL.fullmatch(text.strip()):
            raise ValueError("must be a number")
        value = float(text)
        if not 0 <= value <= 1:
            raise ValueError("must be between 0 and 1")
        return value

    return ValueType(kind=ValueKind.DOUBLE, parse=parse)
