"""Fields of Protocol Buffers by their numbers."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue

from posthouse.protocols.admin.decoding.protobuf import message_of


def test_what_googles_library_writes_is_read() -> None:
    message = KeyValue(
        key="colours",
        value=AnyValue(
            array_value=ArrayValue(values=[AnyValue(string_value="red"), AnyValue(int_value=7)]),
        ),
    )
    assert message_of(b"\x00" + message.SerializeToString()) == {
        "1": "colours",
        "2": {"5": {"1": [{"1": "red"}, {"3": 7}]}},
    }


@pytest.mark.parametrize(
    ("payload", "fields"),
    [
        (b"\x00\x08\x96\x01", {"1": 150}),
        (b"\x04\x02\x00\x08\x01", {"1": 1}),  # of the first type inside of the second one
        (b"\x00\x09" + (5).to_bytes(8, "little"), {"1": 5}),
        (b"\x00\x0d" + (5).to_bytes(4, "little"), {"1": 5}),
        (b"\x00\x0a\x02\xff\xfe", {"1": "fffe"}),
        (b"\x00\x08\x01\x08\x02", {"1": [1, 2]}),
        (b"\x00", {}),
        (b"\x00\x0a\x05ab", None),
        (b"\x00\x0b", None),
        (b"\x00\x00\x01", None),
        (b"\x00\x09abc", None),
        (b"\x7f", None),
        (b"", None),
    ],
)
def test_fields(payload: bytes, fields: object) -> None:
    assert message_of(payload) == fields


@given(st.binary(max_size=200))
def test_any_bytes(payload: bytes) -> None:
    found = message_of(b"\x00" + payload)
    assert found is None or msgspec.json.encode(found)


def test_messages_in_messages_without_end() -> None:
    nested = b"\x08\x01"
    for _ in range(2000):
        nested = b"\x0a" + _varint(len(nested)) + nested
    found = message_of(b"\x00" + nested)
    assert found is not None and msgspec.json.encode(found)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
