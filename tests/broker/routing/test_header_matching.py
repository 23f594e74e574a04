"""Matching by header: modes, types, and agreement with a naive matcher."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import NoReturn

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from posthouse.broker.routing.definitions import Binding
from posthouse.broker.routing.header_values import comparable
from posthouse.broker.routing.headers import HeadersMatcher
from posthouse.broker.routing.matcher import Bound
from posthouse.model.errors import InvalidDefinition
from tests.broker.routing.naive import headers_match, same
from tests.examples import examples

Table = dict[str, object]


def bound(number: int, arguments: Table) -> Bound:
    return Bound(number, Binding(source="x", destination="q", arguments=arguments), target=number)


def matcher_of(*tables: Table) -> HeadersMatcher:
    matcher = HeadersMatcher()
    for number, arguments in enumerate(tables):
        matcher.add(bound(number, arguments))
    return matcher


def numbers(matcher: HeadersMatcher, headers: Table) -> list[int]:
    return [each.number for each in matcher.match(b"", headers)]


@pytest.mark.parametrize(
    ("arguments", "headers", "expected"),
    [
        ({}, {}, True),
        ({}, {"a": 1}, True),
        ({"x-match": "all"}, {"a": 1}, True),
        ({"x-match": "any"}, {"a": 1}, False),
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, False),
        ({"x-match": "any", "a": 1, "b": 2}, {"b": 2}, True),
        ({"x-match": "any", "a": 1, "b": 2}, {"a": 2, "b": 1}, False),
        ({"a": None}, {"a": "whatever"}, True),
        ({"a": None}, {"a": None}, True),
        ({"a": None}, {"b": 1}, False),
        ({"a": None, "b": 1}, {"a": 0, "b": 1}, True),
        ({"x-match": "any", "a": None, "b": 1}, {"a": 0}, True),
        ({"x-match": "all", "x-a": 1}, {}, True),
        ({"x-match": "all", "x-a": 1, "b": 1}, {"x-a": 2, "b": 1}, True),
        ({"x-match": "all-with-x", "x-a": 1}, {}, False),
        ({"x-match": "all-with-x", "x-a": 1, "b": 1}, {"x-a": 1, "b": 1}, True),
        ({"x-match": "any", "x-a": 1}, {"x-a": 1}, False),
        ({"x-match": "any-with-x", "x-a": 1}, {"x-a": 1}, True),
        ({"x-match": "any-with-x"}, {"x-match": "any-with-x"}, False),
        ({"x-match": "all-with-x"}, {}, True),
    ],
)
def test_modes(arguments: Table, headers: Table, expected: bool) -> None:
    assert bool(numbers(matcher_of(arguments), headers)) is expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (1, "1", False),
        (1, True, False),
        (0, False, False),
        (True, True, True),
        (True, "true", False),
        (1, 1.0, True),
        (1.5, "1.5", False),
        ("a", b"a", True),
        ("ä", "ä".encode(), True),
        ("a", "A", False),
        ("", None, False),
        (Decimal("1.5"), 1.5, False),
        (Decimal("1.5"), Decimal("1.5"), True),
        (Decimal("1.5"), Decimal("1.50"), False),
        (datetime(2024, 1, 1, tzinfo=UTC), 1704067200, True),
        (datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1), True),
        ([1, "a"], [1, "a"], True),
        ([1, "a"], ["a", 1], False),
        ([1], [True], False),
        ({"a": [1]}, {"a": [1]}, True),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"a": 1}, {"a": "1"}, False),
        ({}, [], False),
        (float("nan"), float("nan"), False),
        (object(), object(), False),
    ],
)
def test_values(one: object, other: object, expected: bool) -> None:
    assert bool(numbers(matcher_of({"a": one}), {"a": other})) is expected
    assert bool(
        numbers(matcher_of({"x-match": "any", "a": other}), {"a": one} if other is not None else {})
    ) is (expected)


def test_headers_that_no_binding_names_are_not_looked_at() -> None:
    class Untouchable(dict[str, object]):
        def items(self) -> NoReturn:
            raise AssertionError

    assert numbers(matcher_of({"a": 1}), {"a": 1, "b": Untouchable()}) == [0]
    with pytest.raises(AssertionError):
        numbers(matcher_of({"b": 1}), {"b": Untouchable()})


def test_not_a_number_is_not_even_itself() -> None:
    nan = float("nan")
    assert numbers(matcher_of({"a": nan}, {"x-match": "any", "a": nan}), {"a": nan}) == []


def test_nesting_without_end_is_the_same_as_nothing() -> None:
    deep: object = []
    for _ in range(10_000):
        deep = [deep]
    assert numbers(matcher_of({"a": deep}, {"a": None}), {"a": deep}) == [1]


@pytest.mark.parametrize("mode", ["some", "", "ALL", 1, None, True, b"all", ["all"]])
def test_unknown_modes_are_refused_and_change_nothing(mode: object) -> None:
    matcher = matcher_of({"a": 1})
    with pytest.raises(InvalidDefinition):
        matcher.add(bound(1, {"x-match": mode, "a": 1}))
    assert numbers(matcher, {"a": 1}) == [0]


def test_matches_come_in_the_order_of_binding() -> None:
    matcher = matcher_of({"b": 1}, {}, {"x-match": "any", "a": 1, "b": 1}, {"a": 2}, {"a": 1}, {"b": None})
    assert numbers(matcher, {"a": 1, "b": 1}) == [0, 1, 2, 4, 5]


scalars = st.one_of(
    st.sampled_from([0, 1, 1.0, True, False, "", "1", "a", b"a", b"\xff", Decimal(1), Decimal("1.0")]),
    st.just(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    ),
    max_leaves=3,
)
names = st.sampled_from(["a", "b", "c", "x-a", "x-b"])
tables = st.dictionaries(names, st.one_of(values, st.none()), max_size=4)
modes = st.sampled_from(
    [{}, {"x-match": "all"}, {"x-match": "any"}, {"x-match": "all-with-x"}, {"x-match": "any-with-x"}]
)
arguments = st.builds(lambda mode, table: {**mode, **table}, modes, tables)


@settings(max_examples=examples(500))
@given(one=values, other=values)
def test_values_agree(one: object, other: object) -> None:
    assert (comparable(one) == comparable(other)) is same(one, other)
    if same(one, other):
        assert hash(comparable(one)) == hash(comparable(other))


@settings(max_examples=examples(500))
@given(bindings=st.lists(arguments, max_size=10), messages=st.lists(tables, min_size=1, max_size=5))
def test_agrees_with_the_naive_matcher(bindings: list[Table], messages: list[Table]) -> None:
    matcher = matcher_of(*bindings)
    for headers in messages:
        assert numbers(matcher, headers) == [
            number for number, table in enumerate(bindings) if headers_match(table, headers)
        ]


@given(data=st.data(), bindings=st.lists(arguments, max_size=8), headers=tables)
def test_what_is_removed_leaves_nothing(data: st.DataObject, bindings: list[Table], headers: Table) -> None:
    matcher = HeadersMatcher()
    there = [bound(number, table) for number, table in enumerate(bindings)]
    for each in there:
        matcher.add(each)
    for each in data.draw(st.permutations(there)):
        matcher.remove(each)
        there.remove(each)
        assert numbers(matcher, headers) == [
            one.number for one in there if headers_match(one.binding.arguments, headers)
        ]
    assert not any(vars(matcher).values())
