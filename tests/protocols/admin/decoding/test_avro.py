"""Avro by its schema: the same as fastavro reads, and whatever bytes there are, an answer soon."""

import base64
import io
import json
import time
from typing import Any

import fastavro
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.protocols.admin.decoding.avro import AvroSchema, MalformedAvro

_PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "bytes": st.binary(max_size=20),
    "string": st.text(max_size=20),
}


@st.composite
def _schemas_and_values(draw: st.DrawFn, depth: int = 0) -> tuple[Any, st.SearchStrategy[Any]]:
    """A schema, and what fits it."""
    simple = [*_PRIMITIVES, "enum", "fixed"]
    kind = draw(st.sampled_from(simple if depth > 2 else [*simple, "array", "map", "record", "union"]))
    name = f"n{draw(st.integers(0, 10**9))}"
    if kind in _PRIMITIVES:
        return kind, _PRIMITIVES[kind]
    if kind == "enum":
        return {"type": "enum", "name": name, "symbols": ["A", "B"]}, st.sampled_from(["A", "B"])
    if kind == "fixed":
        return {"type": "fixed", "name": name, "size": 3}, st.binary(min_size=3, max_size=3)
    inner, values = draw(_schemas_and_values(depth + 1))
    if kind == "array":
        return {"type": "array", "items": inner}, st.lists(values, max_size=3)
    if kind == "map":
        return {"type": "map", "values": inner}, st.dictionaries(st.text(max_size=5), values, max_size=3)
    if kind == "union":
        if inner == "null" or isinstance(inner, list):
            inner, values = "string", st.text(max_size=5)
        return ["null", inner], st.one_of(st.none(), values)
    fields = [{"name": "a", "type": inner}, {"name": "b", "type": "long"}]
    whole = st.fixed_dictionaries({"a": values, "b": _PRIMITIVES["long"]})
    return {"type": "record", "name": name, "namespace": "shop", "fields": fields}, whole


@given(st.data())
def test_what_fastavro_writes_is_read(data: st.DataObject) -> None:
    schema, values = data.draw(_schemas_and_values())
    value = data.draw(values)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    assert AvroSchema(json.dumps(schema)).decode(out.getvalue()) == value


def _order() -> dict[str, Any]:
    return {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long"},
            {
                "name": "price",
                "type": {"type": "bytes", "logicalType": "decimal", "scale": 2, "precision": 9},
            },
            {
                "name": "buyer",
                "type": {"type": "record", "name": "Person", "fields": [{"name": "n", "type": "string"}]},
            },
            {"name": "seller", "type": ["null", "Person"]},
            {"name": "parts", "type": {"type": "array", "items": "shop.Order"}},
        ],
    }


def test_names_are_used_again_and_decimals_are_numbers() -> None:
    payload = bytes.fromhex("0e0430 3904616e020462 6f00".replace(" ", ""))
    assert AvroSchema(json.dumps(_order())).decode(payload) == {
        "id": 7,
        "price": "123.45",
        "buyer": {"n": "an"},
        "seller": {"n": "bo"},
        "parts": [],
    }


@pytest.mark.parametrize(
    ("number", "scale", "shown"), [(5, 2, "0.05"), (-12345, 2, "-123.45"), (7, 0, "7"), (0, 3, "0.000")]
)
def test_decimals(number: int, scale: int, shown: str) -> None:
    schema = AvroSchema(json.dumps({"type": "bytes", "logicalType": "decimal", "scale": scale}))
    data = number.to_bytes(4, "big", signed=True)
    assert schema.decode(bytes([8]) + data) == shown


def test_values_have_a_form_in_json() -> None:
    assert msgspec.json.encode(AvroSchema('"bytes"').decode(b"\x04ab")) == b'"%s"' % base64.b64encode(b"ab")


@pytest.mark.parametrize(
    ("schema", "payload", "says"),
    [
        ('"string"', b"\x06ab", "ends too early"),
        ('"string"', b"\x02ab", "longer than the schema says"),
        ('"string"', b"\x01", "ends too early"),
        ('"long"', b"\x80" * 20, "does not fit"),
        ('["null"]', b"\x02", "does not fit"),
        ('"nothing"', b"", "'nothing', which is not in it"),
        ("{", b"", "not valid JSON"),
        ("[" * 200 + "]" * 200, b"", "nested too deep"),
        ('{"type": "array"}', b"\x02\x00", "does not fit"),
        ('{"type": "record", "name": "r", "fields": [{"name": "r", "type": "r"}]}', b"", "nested too deep"),
    ],
)
def test_what_cannot_be_read(schema: str, payload: bytes, says: str) -> None:
    with pytest.raises(MalformedAvro, match=says):
        AvroSchema(schema).decode(payload)


def test_very_many_values_of_no_size_are_not_read() -> None:
    """A payload of ten bytes may claim any number of nulls."""
    begun = time.process_time()
    with pytest.raises(MalformedAvro, match="more than"):
        AvroSchema('{"type": "array", "items": "null"}').decode(b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01")
    assert time.process_time() - begun < 5


@given(
    st.sampled_from(['"string"', '"long"', json.dumps(_order()), '{"type": "map", "values": "int"}']),
    st.binary(),
)
def test_any_bytes(schema: str, payload: bytes) -> None:
    try:
        AvroSchema(schema).decode(payload)
    except MalformedAvro as error:
        assert str(error)
