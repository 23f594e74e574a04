"""Exchanges and bindings in storage: round trips, stable keys, and what damage does."""

import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import hypothesis.strategies as st
import pytest
from hypothesis import given

from posthouse.broker.routing.definitions import Binding, ExchangeDefinition, ExchangeKind
from posthouse.broker.routing.encoding import (
    binding_key,
    decode_binding,
    decode_exchange,
    encode_binding,
    encode_exchange,
    exchange_key,
    namespace_of,
)
from posthouse.model.errors import DataDamaged, InvalidDefinition

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64),
    st.floats(allow_nan=False),
    st.text(max_size=10),
    st.binary(max_size=10),
    st.datetimes(timezones=st.just(UTC)),
    st.decimals(allow_nan=False),
)
tagged_names = st.sampled_from(["$bytes", "$time", "$table", "$decimal", "$float", "$", "micros"])
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.text(max_size=5), tagged_names), inner, max_size=3),
    ),
    max_leaves=8,
)
tables = st.dictionaries(st.one_of(st.text(max_size=5), tagged_names), values, max_size=4)
exchanges = st.builds(
    ExchangeDefinition,
    name=names,
    kind=st.sampled_from(ExchangeKind),
    durable=st.booleans(),
    auto_delete=st.booleans(),
    internal=st.booleans(),
    alternate=st.one_of(st.none(), names),
    delayed=st.booleans(),
    arguments=tables,
)
bindings = st.builds(
    Binding,
    source=names,
    destination=names,
    to_exchange=st.booleans(),
    key=st.binary(max_size=20),
    arguments=tables,
)

EXCHANGE = ExchangeDefinition(
    name="orders", kind=ExchangeKind.TOPIC, arguments={"alternate-exchange": "rest"}
)
BINDING = Binding(
    source="orders", destination="all", key=b"#", arguments={"when": datetime(2024, 1, 1, tzinfo=UTC)}
)


@given(definition=exchanges)
def test_exchanges_come_back(definition: ExchangeDefinition) -> None:
    again = decode_exchange(encode_exchange(definition))
    assert again == definition
    assert encode_exchange(again) == encode_exchange(definition)  # == takes 1 for 1.0


@given(binding=bindings)
def test_bindings_come_back(binding: Binding) -> None:
    again = decode_binding(encode_binding(binding))
    assert again == binding
    assert encode_binding(again) == encode_binding(binding)


@given(one=bindings, other=bindings)
def test_only_the_same_is_encoded_alike(one: Binding, other: Binding) -> None:
    backwards = Binding(
        source=one.source,
        destination=one.destination,
        to_exchange=one.to_exchange,
        key=one.key,
        arguments=dict(reversed(list(one.arguments.items()))),
    )
    assert encode_binding(backwards) == encode_binding(one)
    assert binding_key("/", backwards) == binding_key("/", one)
    if one != other:
        assert encode_binding(one) != encode_binding(other)
        assert binding_key("/", one) != binding_key("/", other)


@pytest.mark.parametrize(
    ("one", "other"), [(1, True), (1, 1.0), (1, "1"), (0.0, -0.0), ("a", b"a"), (None, ""), (1, Decimal(1))]
)
def test_types_are_told_apart(one: object, other: object) -> None:
    def encoded(value: object) -> bytes:
        return encode_binding(Binding(source="x", destination="q", arguments={"a": value}))

    assert encoded(one) != encoded(other)
    assert type(decode_binding(encoded(one)).arguments["a"]) is type(one)


def test_what_becomes_of_odd_values() -> None:
    def again(value: object) -> object:
        return decode_binding(
            encode_binding(Binding(source="x", destination="q", arguments={"a": value}))
        ).arguments["a"]

    assert again((1, (2,))) == [1, [2]]
    assert again(bytearray(b"a")) == b"a"
    assert again(datetime(2024, 1, 1)) == datetime(2024, 1, 1, tzinfo=UTC)
    east = timezone(timedelta(hours=5, microseconds=1))
    assert again(datetime(2024, 1, 1, microsecond=7, tzinfo=east)) == datetime(
        2024, 1, 1, microsecond=7, tzinfo=east
    )
    assert repr(again(float("nan"))) == "nan"
    assert again(datetime.max.replace(tzinfo=UTC)) == datetime.max.replace(tzinfo=UTC)


def test_the_format_does_not_change() -> None:
    """What is here, is on disks: a change needs a new version."""
    assert encode_exchange(EXCHANGE) == (
        b'{"alternate":null,"arguments":{"alternate-exchange":"rest"},"auto_delete":false,"delayed":false,'
        b'"durable":true,"internal":false,"kind":"topic","name":"orders","version":1}'
    )
    assert encode_binding(BINDING) == (
        b'{"arguments":{"when":{"$time":1704067200}},"destination":"all","key":{"$bytes":"Iw=="},'
        b'"source":"orders","to_exchange":false,"version":1}'
    )
    assert exchange_key("/", "orders") == b"\0\0\0\x01/orders"
    assert binding_key("/", BINDING).hex().startswith("000000012f")


@given(one=st.tuples(names, names), other=st.tuples(names, names))
def test_keys_of_exchanges(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (exchange_key(*one) == exchange_key(*other)) is (one == other)
    assert namespace_of(exchange_key(*one)) == one[0]
    assert namespace_of(binding_key(one[0], BINDING)) == one[0]


@pytest.mark.parametrize("key", [b"", b"\0\0\0", b"\0\0\0\x05abcd", b"\0\0\0\x01\xff", b"\xff\xff\xff\xff"])
def test_damaged_keys(key: bytes) -> None:
    with pytest.raises(DataDamaged):
        namespace_of(key)


@pytest.mark.parametrize(
    "arguments",
    [{"a": {1}}, {"a": object()}, {"a": {1: 2}}, {1: 2}, {"a": [1j]}, {"a": 10**10_000}],
)
def test_what_no_table_can_hold(arguments: dict[str, object]) -> None:
    with pytest.raises(InvalidDefinition):
        encode_binding(Binding(source="x", destination="q", arguments=arguments))


def test_nesting_has_an_end() -> None:
    deep: object = 1
    for _ in range(10_000):
        deep = [deep]
    with pytest.raises(InvalidDefinition):
        encode_binding(Binding(source="x", destination="q", arguments={"a": deep}))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"1",
        b"{}",
        b"\xff\xfe\xfd",
        b"[" * 100_000,
        b'{"a":' + b"[" * 900 + b"]" * 900 + b"}",
        b'{"$table":1}',
        b'{"version":2}',
        b'{"version":1}',
    ],
)
def test_what_is_no_definition(data: bytes) -> None:
    with pytest.raises(DataDamaged):
        decode_exchange(data)
    with pytest.raises(DataDamaged):
        decode_binding(data)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", 1),
        ("kind", "lottery"),
        ("kind", None),
        ("durable", 1),
        ("auto_delete", None),
        ("internal", "true"),
        ("alternate", False),
        ("delayed", {}),
        ("arguments", []),
        ("arguments", {"$bytes": "AA=="}),
        ("arguments", {"a": {"$bytes": "?"}}),
        ("arguments", {"a": {"$bytes": 1}}),
        ("arguments", {"a": {"$bytes": "", "b": 1}}),
        ("arguments", {"a": {"$time": "now"}}),
        ("arguments", {"a": {"$time": 10**20}}),
        ("arguments", {"a": {"$time": 1, "micros": "1"}}),
        ("arguments", {"a": {"$decimal": "one"}}),
        ("arguments", {"a": {"$float": "1"}}),
        ("arguments", {"a": {"$table": []}}),
        ("arguments", {"a": {"$else": 1}}),
        ("arguments", {"a": [{"$bytes": "", "$time": 1}]}),
        ("version", 2),
        ("version", None),
        ("more", 1),
    ],
)
def test_damaged_exchanges(field: str, value: object) -> None:
    stored = json.loads(encode_exchange(EXCHANGE)) | {field: value}
    with pytest.raises(DataDamaged):
        decode_exchange(json.dumps(stored).encode())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("source", None),
        ("destination", 1),
        ("to_exchange", 0),
        ("key", "#"),
        ("key", {"$bytes": "I"}),
        ("arguments", None),
        ("more", 1),
        ("version", "1"),
    ],
)
def test_damaged_bindings(field: str, value: object) -> None:
    stored = json.loads(encode_binding(BINDING)) | {field: value}
    with pytest.raises(DataDamaged):
        decode_binding(json.dumps(stored).encode())


@given(data=st.data())
def test_no_damage_raises_anything_else(data: st.DataObject) -> None:
    encoded = bytearray(encode_binding(BINDING))
    for _ in range(data.draw(st.integers(1, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = decode_binding(bytes(encoded))
    except DataDamaged:
        return
    assert isinstance(decoded, Binding)
