"""Filters on the tag of a message: `*`, or `a || b || c`."""

from collections.abc import Mapping

from posthouse.broker.filters.filter import EVERYTHING, Filter
from posthouse.broker.filters.limits import check_length
from posthouse.model.errors import InvalidFilter


class _Tags:
    __slots__ = ("_tags",)

    def __init__(self, tags: frozenset[str]) -> None:
        self._tags = tags

    def matches(self, properties: Mapping[str, str], tag: str | None) -> bool:
        return tag in self._tags


def compile_tags(expression: str) -> Filter:
    """Matches messages whose tag is exactly one of the listed; `*` and the empty text match every message."""
    check_length(expression)
    if expression.strip() in ("", "*"):
        return EVERYTHING
    tags = frozenset(tag for part in expression.split("||") if (tag := part.strip()))
    if not tags:
        raise InvalidFilter(1, "a tag beside ||", "none")
    return _Tags(tags)
