"""Bytes of records as people read them, and back: keys, values and headers.

What the bytes are is told from the bytes alone, in this order: a JSON object or array, printable UTF-8 text,
the wire format of Confluent's serializers (a zero, the id of a schema, the payload), a MessagePack map or
array. Everything else is shown as hex. Payloads that need a schema are shown as hex, too: schemas are in a
schema registry, which the broker does not have.
"""

import binascii
from base64 import b64decode
from struct import Struct
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from posthouse.protocols.admin.problems import Problem

_FRAME = Struct(">bI")
_INT64_SIZE = 8
_NEEDS_SCHEMA = (
    "the payload is shown as hex: its schema is in a schema registry, which the broker does not have"
)
_CONTROLS = frozenset("\t\n\r")

SentEncoding = Annotated[
    Literal["text", "json", "base64"],
    Meta(description="How bytes are written in JSON: a text, any JSON value, or base64 for any bytes."),
]


class Payload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    encoding: Annotated[
        Literal["text", "json", "msgpack", "avro", "protobuf", "hex"],
        Meta(description="What the bytes were taken for; it says how `data` is to be read."),
    ]
    data: Annotated[Any, Meta(description="The value itself for json and msgpack, otherwise a text.")]
    size: Annotated[int, Meta(description="Bytes of the whole, as stored.")]
    truncated: Annotated[bool, Meta(description="`data` has only the beginning.")] = False
    schema_id: Annotated[int | None, Meta(description="Id of the schema in a schema registry.")] = None
    note: Annotated[str | None, Meta(description="Why `data` is not shown in another way.")] = None


def shown(data: bytes | None, limit: int) -> Payload | None:
    """`data` as JSON can have it, at most `limit` bytes of it."""
    if data is None:
        return None
    if len(data) > limit:
        return _cut(data, limit)
    if data[:1] in (b"{", b"[") or data[:1].isspace():
        parsed = _json_container(data)
        if parsed is not None:
            return Payload(encoding="json", data=parsed, size=len(data))
    text = _text(data)
    if text is not None:
        return Payload(encoding="text", data=text, size=len(data))
    return _framed(data) or _msgpack(data) or Payload(encoding="hex", data=data.hex(), size=len(data))


def _cut(data: bytes, limit: int) -> Payload:
    beginning = data[:limit]
    text = _text(without_broken_end(beginning))
    if text is not None:
        return Payload(encoding="text", data=text, size=len(data), truncated=True)
    return Payload(encoding="hex", data=beginning.hex(), size=len(data), truncated=True)


def without_broken_end(data: bytes) -> bytes:
    """Up to three bytes less: those of a character that the cut has split."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte >= 0xC0:
            return data[:-back]
        if byte < 0x80:
            break
    return data


def _json_container(data: bytes) -> msgspec.Raw | None:
    """As it was written: numbers are not rounded."""
    try:
        value = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return None
    return msgspec.Raw(data) if isinstance(value, dict | list) else None


def _text(data: bytes) -> str | None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if text.isprintable() or all(each.isprintable() or each in _CONTROLS for each in text):
        return text
    return None


def _framed(data: bytes) -> Payload | None:
    # A 64-bit number has the same form, and is more frequent than a payload of three bytes.
    if len(data) <= _FRAME.size or len(data) == _INT64_SIZE:
        return None
    magic, schema_id = _FRAME.unpack_from(data)
    if magic != 0 or schema_id == 0:
        return None
    payload = data[_FRAME.size :]
    parsed = _json_container(payload)
    if parsed is not None:
        return Payload(encoding="json", data=parsed, size=len(data), schema_id=schema_id)
    return Payload(
        encoding="protobuf" if _is_protobuf(payload) else "avro",
        data=payload.hex(),
        size=len(data),
        schema_id=schema_id,
        note=_NEEDS_SCHEMA,
    )


def _is_protobuf(payload: bytes) -> bool:
    """Whether it is the index of a message type, mostly a zero, and then fields of Protocol Buffers."""
    if payload[:1] != b"\x00":
        return False
    position, size = 1, len(payload)
    while position < size:
        tag, position = _varint(payload, position)
        wire_type = tag & 7
        if tag >> 3 == 0:
            return False
        if wire_type == 0:
            _, position = _varint(payload, position)
        elif wire_type == 1:
            position += 8
        elif wire_type == 2:
            length, position = _varint(payload, position)
            position += length
        elif wire_type == 5:
            position += 4
        else:
            return False
    return position == size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Value and position behind it, which is beyond the end if the data is cut off."""
    value = shift = 0
    while position < len(data) and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    return value, len(data) + 1


def _msgpack(data: bytes) -> Payload | None:
    try:
        value = msgspec.msgpack.decode(data)
        if not isinstance(value, dict | list):
            return None
        encoded = msgspec.Raw(msgspec.json.encode(value))
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None  # some MessagePack has no form in JSON, such as extension types
    return Payload(encoding="msgpack", data=encoded, size=len(data))


def stored(data: object, encoding: SentEncoding, what: str) -> bytes | None:
    """The bytes to store for what a request holds; null is null. Raises Problem."""
    if data is None:
        return None
    if encoding == "json":
        try:
            return msgspec.json.encode(data)
        except (OverflowError, RecursionError) as error:
            raise Problem(400, f"{what} cannot be written as JSON: {error}") from None
    if not isinstance(data, str):
        raise Problem(400, f"{what} must be a text, or null; for other JSON values the encoding is json")
    if encoding == "text":
        return data.encode()
    try:
        return b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Problem(400, f"{what} is not valid base64: {error}") from None
