"""Conditions to closures, which say whether a condition is true of a message.

In SQL a condition is true, false or unknown, and only true selects a message. Negation is moved inwards, down
to the comparisons: NOT (p AND q) is NOT p OR NOT q, and NOT a < b is a >= b. Both hold with three values.
After that nothing above a comparison is negated, so a comparison may return False for unknown: two values are
enough.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from posthouse.broker.filters.patterns import matcher
from posthouse.broker.filters.syntax import (
    Absence,
    Comparator,
    Comparison,
    Condition,
    Conjunction,
    Constant,
    Disjunction,
    Likeness,
    Literal,
    Membership,
    Negation,
    Property,
    TextCondition,
    TextRelation,
)
from posthouse.broker.filters.values import number, truth

TAGS = "TAGS"
"""The name of the tag in expressions."""

Decision: TypeAlias = Callable[[Mapping[str, str], str | None], bool]
Test: TypeAlias = Callable[[str], bool]

_COMPARE: dict[Comparator, Callable[[Any, Any], bool]] = {
    Comparator.EQUAL: operator.eq,
    Comparator.UNEQUAL: operator.ne,
    Comparator.LESS: operator.lt,
    Comparator.LESS_OR_EQUAL: operator.le,
    Comparator.GREATER: operator.gt,
    Comparator.GREATER_OR_EQUAL: operator.ge,
}
_OPPOSITE = {
    Comparator.EQUAL: Comparator.UNEQUAL,
    Comparator.UNEQUAL: Comparator.EQUAL,
    Comparator.LESS: Comparator.GREATER_OR_EQUAL,
    Comparator.LESS_OR_EQUAL: Comparator.GREATER,
    Comparator.GREATER: Comparator.LESS_OR_EQUAL,
    Comparator.GREATER_OR_EQUAL: Comparator.LESS,
}
_SWAPPED = {
    Comparator.EQUAL: Comparator.EQUAL,
    Comparator.UNEQUAL: Comparator.UNEQUAL,
    Comparator.LESS: Comparator.GREATER,
    Comparator.LESS_OR_EQUAL: Comparator.GREATER_OR_EQUAL,
    Comparator.GREATER: Comparator.LESS,
    Comparator.GREATER_OR_EQUAL: Comparator.LESS_OR_EQUAL,
}


def decision(condition: Condition, *, negative: bool = False) -> Decision:
    """Whether the condition, or with `negative` its negation, is true of a message."""
    match condition:
        case Negation():
            return decision(condition.condition, negative=not negative)
        case Conjunction() | Disjunction():
            decisions = tuple(decision(each, negative=negative) for each in condition.conditions)
            return _any(decisions) if isinstance(condition, Conjunction) is negative else _all(decisions)
        case Constant():
            return _constant(condition.value is not negative)
        case Absence():
            return _present(condition.property) if negative else _absent(condition.property)
        case Comparison():
            return _comparison(condition, negative=negative)
        case Membership():
            return _of_text(condition.property, _signed(condition.texts.__contains__, negative=negative))
        case TextCondition():
            return _of_text(condition.property, _signed(_relation(condition), negative=negative))
        case Likeness():
            return _of_text(condition.property, _signed(matcher(condition.pattern), negative=negative))


def _all(decisions: tuple[Decision, ...]) -> Decision:
    def decide(properties: Mapping[str, str], tag: str | None) -> bool:
        for each in decisions:  # noqa: SIM110 - twice as fast as all() with a generator
            if not each(properties, tag):
                return False
        return True

    return decide


def _any(decisions: tuple[Decision, ...]) -> Decision:
    def decide(properties: Mapping[str, str], tag: str | None) -> bool:
        for each in decisions:  # noqa: SIM110
            if each(properties, tag):
                return True
        return False

    return decide


def _constant(value: bool) -> Decision:
    return lambda properties, tag: value


def _absent(wanted: Property) -> Decision:
    name = wanted.name
    if name == TAGS:
        return lambda properties, tag: tag is None
    return lambda properties, tag: name not in properties


def _present(wanted: Property) -> Decision:
    name = wanted.name
    if name == TAGS:
        return lambda properties, tag: tag is not None
    return lambda properties, tag: name in properties


def _of_text(wanted: Property, test: Test) -> Decision:
    """Unknown, and so not true, without the property."""
    name = wanted.name
    if name == TAGS:
        return lambda properties, tag: tag is not None and test(tag)

    def decide(properties: Mapping[str, str], tag: str | None) -> bool:
        text = properties.get(name)
        return text is not None and test(text)

    return decide


def _lookup(wanted: Property) -> Callable[[Mapping[str, str], str | None], str | None]:
    name = wanted.name
    if name == TAGS:
        return lambda properties, tag: tag
    return lambda properties, tag: properties.get(name)


def _signed(test: Test, *, negative: bool) -> Test:
    return (lambda text: not test(text)) if negative else test


def _relation(condition: TextCondition) -> Test:
    wanted = condition.text
    match condition.relation:
        case TextRelation.CONTAINS:
            return lambda text: wanted in text
        case TextRelation.STARTSWITH:
            return lambda text: text.startswith(wanted)
        case TextRelation.ENDSWITH:
            return lambda text: text.endswith(wanted)


def _comparison(condition: Comparison, *, negative: bool) -> Decision:
    comparator = _OPPOSITE[condition.comparator] if negative else condition.comparator
    left, right = condition.left, condition.right
    if isinstance(left, Literal) and (isinstance(right, Property) or isinstance(right.value, str)):
        left, right, comparator = right, left, _SWAPPED[comparator]
    if isinstance(left, Property) and isinstance(right, Property):
        return _of_properties(comparator, left, right)
    assert isinstance(right, Literal), "a property alone was swapped to the left"
    test = _comparison_with(comparator, right.value)
    if isinstance(left, Literal):
        return _constant(test(str(left.value)))
    return _of_text(left, test)


def _comparison_with(comparator: Comparator, value: str | int | float | bool) -> Test:
    """The comparison of a property's text: unknown, and so not true, if it is not of the value's kind."""
    if isinstance(value, str):
        return value.__eq__ if comparator is Comparator.EQUAL else value.__ne__
    compare = _COMPARE[comparator]
    if isinstance(value, bool):

        def test_truth(text: str) -> bool:
            found = truth(text)
            return found is not None and compare(found, value)

        return test_truth

    def test_number(text: str) -> bool:
        found = number(text)
        return found is not None and compare(found, value)

    return test_number


def _of_properties(comparator: Comparator, left: Property, right: Property) -> Decision:
    """Of two properties: texts may be equal, only numbers have an order."""
    compare = _COMPARE[comparator]
    left_text, right_text = _lookup(left), _lookup(right)

    def decide_by_text(properties: Mapping[str, str], tag: str | None) -> bool:
        one, other = left_text(properties, tag), right_text(properties, tag)
        return one is not None and other is not None and compare(one, other)

    def decide_by_number(properties: Mapping[str, str], tag: str | None) -> bool:
        one, other = left_text(properties, tag), right_text(properties, tag)
        if one is None or other is None:
            return False
        first, second = number(one), number(other)
        return first is not None and second is not None and compare(first, second)

    return decide_by_number if comparator.orders else decide_by_text
