"""Bytes of records as people read them, and back: keys, values and headers.

What the bytes are is told from the bytes alone, in this order: a JSON object or array, printable UTF-8 text,
the wire format of Confluent's serializers (a zero, the id of a schema, the payload), a MessagePack map or
array. Everything else is shown as hex. Avro needs its schema, which is in a topic if the schema registry
keeps its schemas in this broker; Protocol Buffers are shown by the numbers of their fields.
"""

import binascii
from base64 import b64decode
from struct import Struct
from typing import Annotated, Any, Final, Literal, Protocol

import msgspec
from msgspec import Meta

from posthouse.protocols.admin.decoding.avro import MalformedAvro
from posthouse.protocols.admin.decoding.protobuf import message_of
from posthouse.protocols.admin.decoding.schemas import SCHEMAS_TOPIC, SchemaKind, StoredSchema
from posthouse.protocols.admin.problems import Problem

_FRAME = Struct(">bI")
_INT64_SIZE = 8
_BY_NUMBER = "fields are shown by their numbers: their names and types are in the schema"
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
    data: Annotated[
        Any,
        Meta(
            description="A text for text and hex, otherwise the value. Bytes in Avro and msgpack are base64."
        ),
    ]
    size: Annotated[int, Meta(description="Bytes of the whole, as stored.")]
    truncated: Annotated[bool, Meta(description="`data` has only the beginning.")] = False
    schema_id: Annotated[int | None, Meta(description="Id of the schema in a schema registry.")] = None
    note: Annotated[str | None, Meta(description="Why `data` is not shown in another way.")] = None


class KnownSchemas(Protocol):
    def get(self, id: int, /) -> StoredSchema | None: ...


_NO_SCHEMAS: Final[dict[int, StoredSchema]] = {}


def shown(data: bytes | None, limit: int, schemas: KnownSchemas = _NO_SCHEMAS) -> Payload | None:
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
    return (
        _framed(data, schemas) or _msgpack(data) or Payload(encoding="hex", data=data.hex(), size=len(data))
    )


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


def _framed(data: bytes, schemas: KnownSchemas) -> Payload | None:
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
    schema = schemas.get(schema_id)
    if schema is not None and schema.kind is SchemaKind.AVRO:
        return _avro(data, payload, schema_id, schema)
    is_message = payload[:1] == b"\x00" if schema is None else schema.kind is SchemaKind.PROTOBUF
    fields = message_of(payload) if is_message else None
    if fields is not None:
        encoded = msgspec.Raw(msgspec.json.encode(fields))
        return Payload(
            encoding="protobuf", data=encoded, size=len(data), schema_id=schema_id, note=_BY_NUMBER
        )
    note = (
        f"if it is a payload of a schema registry's client, its schema {schema_id} is not in the topic "
        f"{SCHEMAS_TOPIC!r}, or you may not read that"
    )
    return _hex(data, schema_id, note)


def _avro(data: bytes, payload: bytes, schema_id: int, schema: StoredSchema) -> Payload:
    try:
        value = msgspec.json.encode(schema.decode(payload))
    except (MalformedAvro, ValueError, RecursionError) as error:
        return _hex(data, schema_id, f"it cannot be read as Avro with schema {schema_id}: {error}")
    return Payload(encoding="avro", data=msgspec.Raw(value), size=len(data), schema_id=schema_id)


def _hex(data: bytes, schema_id: int, note: str) -> Payload:
    return Payload(encoding="hex", data=data.hex(), size=len(data), schema_id=schema_id, note=note)


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
