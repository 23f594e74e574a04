"""Writes OTLP metrics, field by field."""

from struct import pack


def varint(number: int) -> bytes:
    written = bytearray()
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def field(number: int, data: bytes | str) -> bytes:
    data = data.encode() if isinstance(data, str) else data
    return varint(number << 3 | 2) + varint(len(data)) + data


def number(place: int, value: int) -> bytes:
    return varint(place << 3) + varint(value & (1 << 64) - 1)


def fixed(place: int, data: bytes) -> bytes:
    return varint(place << 3 | 1) + data


def attribute(name: str, value: bytes) -> bytes:
    return field(1, name) + field(2, value)


def gauge(name: str, value: float, unit: str = "") -> bytes:
    point = fixed(3, pack("<Q", 7_000_000)) + fixed(4, pack("<d", value))
    point += field(7, attribute("topic", field(1, "t")))
    return field(1, name) + field(3, unit) + field(5, field(1, point))


def total(name: str, value: int) -> bytes:
    return field(1, name) + field(7, field(1, fixed(6, pack("<q", value))) + number(2, 1) + number(3, 1))


def histogram(name: str, count: int, value: float) -> bytes:
    point = fixed(4, pack("<Q", count)) + fixed(5, pack("<d", value)) + field(6, b"\0" * 16)
    return field(1, name) + field(9, field(1, point))


def metrics(*measured: bytes, resource: bytes = b"") -> bytes:
    scope = field(1, field(1, "scope")) + b"".join(field(2, each) for each in measured)
    return field(1, field(1, resource) + field(2, scope))
