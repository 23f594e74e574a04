"""Field tables, against pamqp and against what RabbitMQ takes."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import decode as pamqp_decode
from pamqp import encode as pamqp_encode

from posthouse.protocols.amqp.codec.tables import (
    MAX_DEPTH,
    MalformedTable,
    Timestamp,
    check_table,
    decode_table,
    encode_entry,
    encode_table,
    table_entries,
)
from tests.protocols.amqp.codec.amqp_cases import few, normal, tables, with_our_times

VALUES: dict[str, tuple[bytes, object]] = {
    "t": (b"t\x01", True),
    "t, false": (b"t\x00", False),
    "b": (b"b\xff", -1),
    "B": (b"B\xff", 255),
    "s": (b"s\xff\xfe", -2),
    "u": (b"u\xff\xfe", 65534),
    "I": (b"I\xff\xff\xff\xff", -1),
    "i": (b"i\xff\xff\xff\xff", 0xFFFFFFFF),
    "l": (b"l" + b"\xff" * 8, -1),
    "L": (b"L" + b"\xff" * 8, -1),
    "f": (b"f\x3f\x80\x00\x00", 1.0),
    "d": (b"d\x3f\xf0\x00\x00\x00\x00\x00\x00", 1.0),
    "D": (b"D\x02\x00\x00\x00\x7b", Decimal("1.23")),
    "S": (b"S\x00\x00\x00\x02\xc3\xa9", "é"),
    "S, not UTF-8": (b"S\x00\x00\x00\x01\xff", b"\xff"),
    "A": (b"A\x00\x00\x00\x03Vt\x01", [None, True]),
    "T": (b"T\x00\x00\x00\x00\x00\x00\x00\x05", Timestamp(5)),
    "F": (b"F\x00\x00\x00\x03\x01aV", {"a": None}),
    "V": (b"V", None),
    "x": (b"x\x00\x00\x00\x01\xff", b"\xff"),
}


def one(value: bytes) -> bytes:
    return (len(value) + 2).to_bytes(4) + b"\x01k" + value


@pytest.mark.parametrize(("encoded", "value"), list(VALUES.values()), ids=list(VALUES))
def test_every_type(encoded: bytes, value: object) -> None:
    table, end = decode_table(b"??" + one(encoded) + b"!", 2)
    assert table == {"k": value}
    assert type(table["k"]) is type(value)
    assert end == 2 + len(one(encoded)) == check_table(b"??" + one(encoded) + b"!", 2)
    assert table_entries(one(encoded), 0) == [(b"k", b"\x01k" + encoded)]


@pytest.mark.parametrize("encoded", [encoded for encoded, _ in VALUES.values()], ids=list(VALUES))
def test_every_type_cut_off(encoded: bytes) -> None:
    whole = one(encoded)
    for end in range(len(whole)):
        for read in (decode_table, check_table, table_entries):
            with pytest.raises(MalformedTable):
                read(whole[:end], 0)


@few(200)
@given(tables)
def test_tables_that_pamqp_wrote(table: dict[str, Any]) -> None:
    encoded = pamqp_encode.field_table(table)
    assert decode_table(encoded) == (normal(table), len(encoded))
    assert check_table(encoded, 0) == len(encoded)
    entries = b"".join(entry for _, entry in table_entries(encoded, 0))
    assert len(entries).to_bytes(4) + entries == encoded


@few(200)
@given(tables)
def test_tables_that_pamqp_reads(table: dict[str, Any]) -> None:
    encoded = encode_table(with_our_times(table))
    size, read = pamqp_decode.field_table(encoded)
    assert (size, normal(read)) == (len(encoded), normal(table))
    assert decode_table(encoded) == (normal(table), len(encoded))


@few(300)
@given(st.binary(max_size=60), st.integers(0, 5))
def test_noise(data: bytes, pos: int) -> None:
    """Whatever can be read can be checked; the check lets through only odd names."""
    try:
        _, end = decode_table(data, pos)
    except MalformedTable:
        return
    assert check_table(data, pos) == end


@few(300)
@given(tables, st.data())
def test_damage(table: dict[str, Any], data: Any) -> None:
    encoded = bytearray(encode_table(with_our_times(table)))
    for _ in range(data.draw(st.integers(1, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    outcomes = []
    for read in (decode_table, check_table):
        try:
            read(bytes(encoded), 0)
            outcomes.append("read")
        except MalformedTable as error:
            outcomes.append("name" if "UTF-8" in str(error) else "refused")
    assert outcomes in (["read", "read"], ["refused", "refused"], ["name", "read"], ["name", "refused"])


def nested(depth: int) -> bytes:
    value = b"V"
    for _ in range(depth):
        value = b"A" + len(value).to_bytes(4) + value
    return one(value)


def test_depth() -> None:
    table, _ = decode_table(nested(MAX_DEPTH), 0)
    assert table["k"]
    check_table(nested(MAX_DEPTH), 0)
    for read in (decode_table, check_table, table_entries):
        with pytest.raises(MalformedTable, match="nested"):
            read(nested(MAX_DEPTH + 1), 0)
        with pytest.raises(MalformedTable, match="nested"):
            read(nested(5000), 0)


@pytest.mark.parametrize(
    "value",
    [
        1 << 63,
        -(1 << 63) - 1,
        Timestamp(-1),
        object(),
        Decimal(-1),
        Decimal("1e300"),
        Decimal("NaN"),
        Decimal(1 << 32),
    ],
)
def test_values_that_no_table_holds(value: object) -> None:
    with pytest.raises(MalformedTable):
        encode_table({"k": value})


def test_names_have_255_bytes_at_most() -> None:
    assert len(encode_entry("é" * 127, None)) == 256
    with pytest.raises(MalformedTable, match="256 bytes"):
        encode_entry("é" * 128, None)


@pytest.mark.parametrize(
    ("value", "encoded"), [(Decimal("1E+3"), b"D\x00\x00\x00\x03\xe8"), (1.5, b"d?\xf8" + bytes(6))]
)
def test_wide_forms(value: object, encoded: bytes) -> None:
    assert encode_entry("", value) == b"\x00" + encoded
