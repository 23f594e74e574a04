"""Valid bytes for any layout of a Kafka message, straight from the schemas that the codec is made of."""

from random import Random
from struct import pack

from posthouse.protocols.kafka.codec.primitives import uvarint
from tools.kafka_codec.apis import APIS
from tools.kafka_codec.schema import Field, Side, Struct, load
from tools.kafka_codec.source import FORMATS, width

_TEXTS = (b"", b"a", b"topic-1", "é".encode(), b"x" * 130)


def samples(side: Side, *, newest_only: bool) -> list[tuple[int, int, bytes]]:
    """API key, version, and a short and a longer message of it."""
    found = []
    for api in APIS:
        layouts: set[Struct] = set()
        for version in reversed(api.versions):
            struct = load(api, version, side)
            if struct in layouts or (newest_only and layouts):
                continue
            layouts.add(struct)
            random = Random(api.key * 100 + version)
            found += [(api.key, version, _struct(struct, random, most)) for most in (0, 2)]
    return found


def _struct(struct: Struct, random: Random, most: int) -> bytes:
    parts = [_field(field, struct.flexible, random, most) for field in struct.untagged]
    if struct.flexible:
        tagged = struct.tagged if most else []
        parts.append(uvarint(len(tagged)))
        for field in tagged:
            value = _field(field, True, random, most)
            parts += (uvarint(field.tag or 0), uvarint(len(value)), value)
    return b"".join(parts)


def _field(field: Field, flexible: bool, random: Random, most: int) -> bytes:
    if field.array:
        if field.nullable and not most:
            return b"\0" if flexible else b"\xff\xff\xff\xff"
        elements = [_value(field, flexible, random, most) for _ in range(most)]
        count = uvarint(most + 1) if flexible else pack(">i", most)
        return count + b"".join(elements)
    if field.nullable and not most:
        if field.struct is not None:
            return b"\xff"
        return b"\0" if flexible else b"\xff\xff" if field.kind == "string" else b"\xff\xff\xff\xff"
    return (b"\x01" if field.nullable and field.struct is not None else b"") + _value(
        field, flexible, random, most
    )


def _value(field: Field, flexible: bool, random: Random, most: int) -> bytes:
    if field.struct is not None:
        return _struct(field.struct, random, most)
    if field.kind == "bool":
        return b"\x01"
    if field.kind in FORMATS:
        return random.randbytes(width([FORMATS[field.kind]]))
    text = random.choice(_TEXTS) if most else b""
    if flexible:
        return uvarint(len(text) + 1) + text
    return pack(">h" if field.kind == "string" else ">i", len(text)) + text
