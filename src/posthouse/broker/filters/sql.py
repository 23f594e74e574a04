"""Filters on properties: conditions of SQL92, with the operators of RocketMQ."""

from collections.abc import Mapping

from posthouse.broker.filters.conditions import Decision, decision
from posthouse.broker.filters.filter import Filter
from posthouse.broker.filters.parser import parse


class _Sql:
    __slots__ = ("_decision",)

    def __init__(self, decision: Decision) -> None:
        self._decision = decision

    def matches(self, properties: Mapping[str, str], tag: str | None) -> bool:
        return self._decision(properties, tag)


def compile_sql(expression: str) -> Filter:
    """Matches messages of which the expression is true. Raises InvalidFilter if it is not a condition."""
    return _Sql(decision(parse(expression)))
