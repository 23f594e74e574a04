"""Makes the function that writes a message, as text, from its declared fields.

For `string(1)` and `submessage(2, Resource)` of a message Sample it is:

    def write_Sample(message):
        parts = []
        value = message.name
        if value:
            value = value.encode()
            size = len(value)
            parts += (heads_1[size] if size < 128 else tag_1 + varint(size), value)
        value = message.topic
        if value is not None:
            value = write_Resource(value)
            ...
        return b"".join(parts)

`heads_1` are the 128 beginnings of that field whose length, or value, has one byte: most fields are short.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from struct import Struct
from typing import Any, Final

from posthouse.protocols.rocketmq.grpc.messages import wire
from posthouse.protocols.rocketmq.grpc.messages.errors import MalformedMessage
from posthouse.protocols.rocketmq.grpc.messages.fields import Field, Kind, Presence

Writer = Callable[[Any], bytes]

_KEY: Final = 0x0A
_VALUE: Final = 0x12


@cache
def _heads(tag: int) -> tuple[bytes, ...]:
    return tuple(wire.varint(tag) + bytes((size,)) for size in range(0x80))


def _two_members(oneof: str) -> MalformedMessage:
    return MalformedMessage(f"more than one member of {oneof} is set")


def make_writer(name: str, fields: Mapping[str, Field]) -> Writer:
    scope: dict[str, Any] = {
        "varint": wire.varint,
        "int32_varint": wire.int32_varint,
        "int64_varint": wire.int64_varint,
        "two_members": _two_members,
        "pack_float": Struct("<f").pack,
        "float_zero": bytes(4),
        "key_heads": _heads(_KEY),
        "value_heads": _heads(_VALUE),
        "long_entry": _long_entry,
    }
    for key, field in fields.items():
        scope[f"tag_{key}"] = wire.varint(field.tag)
        scope[f"heads_{key}"] = _heads(field.tag)
        if field.kind is Kind.MESSAGE:
            scope[f"write_{key}"] = field.type.write
        elif field.kind is Kind.ENUM:
            scope[f"written_{key}"] = {
                int(each): wire.varint(field.tag) + wire.varint(each) for each in field.type
            }
    exec("\n".join(_lines(name, fields)), scope)  # of the declarations, and of nothing else
    write: Writer = scope[f"write_{name}"]
    return write


def _long_entry(key: bytes, value: bytes) -> bytes:
    """An entry of a map, with its length."""
    entry = b"".join(
        (bytes((_KEY,)), wire.varint(len(key)), key, bytes((_VALUE,)), wire.varint(len(value)), value)
    )
    return wire.varint(len(entry)) + entry


def _lines(name: str, fields: Mapping[str, Field]) -> Iterator[str]:
    yield f"def write_{name}(message):"
    yield "    parts = []"
    for key, field in fields.items():
        yield f"    value = message.{key}"
        yield f"    if {_condition(field)}:"
        for other, rival in fields.items():
            if field.oneof is not None and rival.oneof == field.oneof and rival.number > field.number:
                yield f"        if message.{other} is not None:"
                yield f"            raise two_members({field.oneof!r})"
        text = _append(key, field)
        if field.is_packed or field.kind is Kind.STRING_MAP or field.presence is not Presence.REPEATED:
            yield from (f"        {line}" for line in text.splitlines())
        else:
            yield "        for value in value:"
            yield from (f"            {line}" for line in text.splitlines())
    yield "    return b''.join(parts)"


def _condition(field: Field) -> str:
    if field.presence is Presence.OPTIONAL:
        return "value is not None"
    # -0.0 is not the default, and is sent
    return "pack_float(value) != float_zero" if field.kind is Kind.FLOAT else "value"


def _append(key: str, field: Field) -> str:
    """Appends the parts of `value`."""
    head = f"heads_{key}[size] if size < 0x80 else tag_{key} + varint(size)"
    sized = f"size = len(value)\nparts += ({head}, value)\n"
    short = f"parts.append(heads_{key}[value] if 0 <= value < 0x80 else tag_{key} + "
    if field.is_packed:
        return "value = b''.join([int32_varint(each) for each in value])\n" + sized
    match field.kind:
        case Kind.STRING:
            return "value = value.encode()\n" + sized
        case Kind.BYTES:
            return sized
        case Kind.MESSAGE:
            return f"value = write_{key}(value)\n" + sized
        case Kind.STRING_MAP:
            return _MAP.format(key=key)
        case Kind.BOOLEAN:
            return f"parts.append(heads_{key}[1 if value else 0])\n"
        case Kind.INT32:
            return short + "int32_varint(value))\n"
        case Kind.INT64:
            return short + "int64_varint(value))\n"
        case Kind.ENUM:
            return f"parts.append(written_{key}.get(value) or tag_{key} + int32_varint(value))\n"
        case Kind.FLOAT:
            return f"parts += (tag_{key}, pack_float(value))\n"


_MAP: Final = """\
for text, value in value.items():
    text = text.encode()
    value = value.encode()
    size = len(text)
    rest = len(value)
    if size + rest < 0x7C:
        parts += (heads_{key}[size + rest + 4], key_heads[size], text, value_heads[rest], value)
    else:
        parts += (tag_{key}, long_entry(text, value))
"""
