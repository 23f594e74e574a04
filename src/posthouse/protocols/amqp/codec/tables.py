"""Field tables and arrays: named and plain values that say their own type.

    table     4 bytes of length, then pairs of short string (1 byte of length) and value
    array     4 bytes of length, then values
    value     1 byte of type, then: t b B s u I i l L f d (fixed size), D (scale, 4 bytes), T (seconds),
              S x (4 bytes of length, then bytes), A F (as above), V (nothing)

Types are those that RabbitMQ takes; as there, both l and L are signed.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from struct import Struct
from struct import error as StructError
from typing import Final, TypeAlias

from posthouse.protocols.amqp.codec.types import TYPED_NUMBERS

Table: TypeAlias = dict[str, object]
"""bool, int, Timestamp, float, Decimal, None, str, bytes (or a string that is not UTF-8), list, dict."""

# Tables in tables: enough for people, and nothing that Python's stack would notice.
MAX_DEPTH: Final = 64
MAX_NAME: Final = 255

_LENGTH = Struct(">I")
_DECIMAL = Struct(">BI")
_NUMBERS: Final = {
    ord(code): Struct(">" + form)
    for code, form in zip("bBsuIilLfd", ("b", "B", "h", "H", "i", "I", "q", "q", "f", "d"), strict=True)
}
_SECONDS = Struct(">Q")
_LONG = Struct(">cq")
_DOUBLE = Struct(">cd")
_TIMESTAMP = Struct(">cQ")
_BOOL, _STRING, _BYTES, _ARRAY, _TABLE, _TIME, _FIXED_POINT, _VOID = b"tSxAFTDV"
_SIZED: Final = frozenset((_STRING, _BYTES))
_SIZES: Final = {
    **{kind: 1 + form.size for kind, form in _NUMBERS.items()},
    _BOOL: 2,
    _VOID: 1,
    _TIME: 1 + _SECONDS.size,
    _FIXED_POINT: 1 + _DECIMAL.size,
}
"""Of values that have always the same size, with the byte for the type."""


class MalformedTable(ValueError):
    """Bytes that are no table, or a value that no table can hold."""


class Timestamp(int):
    """Seconds since 1970. A number, but with a type of its own on the wire."""

    __slots__ = ()


def decode_table(data: bytes, pos: int = 0) -> tuple[Table, int]:
    """The table at `pos` and the position behind it."""
    try:
        return _read_table(data, pos, 0)
    except (IndexError, StructError, UnicodeDecodeError):
        raise MalformedTable("a table is cut off, or a name in it is not UTF-8") from None


def table_entries(data: bytes, pos: int) -> list[tuple[bytes, bytes]]:
    """Names, and names with their values as they are: for changing some and keeping others."""
    entries = []
    try:
        end = pos + 4 + _LENGTH.unpack_from(data, pos)[0]
        pos += 4
        while pos < end:
            name_end = pos + 1 + data[pos]
            value_end = _after_value(data, name_end, 1)
            entries.append((data[pos + 1 : name_end], data[pos:value_end]))
            pos = value_end
    except (IndexError, StructError):
        raise MalformedTable("a table is cut off") from None
    if pos != end or end > len(data):
        raise _beyond_end()
    return entries


def value_types(data: bytes, pos: int) -> dict[str, int]:
    """The bytes that stand for the types of a table's values, by name."""
    return {name.decode(errors="replace"): entry[1 + len(name)] for name, entry in table_entries(data, pos)}


def decode_typed_table(data: bytes, pos: int = 0) -> tuple[Table, int]:
    """`decode_table`, with numbers that remember their type."""
    table, end = decode_table(data, pos)
    for name, kind in value_types(data, pos).items():
        number = TYPED_NUMBERS.get(kind)
        if number is not None:
            value = table[name]
            assert isinstance(value, int | float)
            table[name] = number(value)
    return table, end


def check_table(data: bytes, pos: int) -> int:
    """The position behind the table at `pos`. Faster than reading it; does not look at strings and names."""
    try:
        return _after_entries(data, pos, 0, named=True)
    except (IndexError, StructError):
        raise MalformedTable("a table is cut off") from None


def _read_table(data: bytes, pos: int, depth: int) -> tuple[Table, int]:
    end = pos + 4 + _LENGTH.unpack_from(data, pos)[0]
    pos += 4
    table: Table = {}
    while pos < end:
        name_end = pos + 1 + data[pos]
        name = data[pos + 1 : name_end].decode()
        table[name], pos = _read_value(data, name_end, depth + 1)
    if pos != end:
        raise _beyond_end()
    return table, end


def _read_array(data: bytes, pos: int, depth: int) -> tuple[list[object], int]:
    end = pos + 4 + _LENGTH.unpack_from(data, pos)[0]
    pos += 4
    values = []
    while pos < end:
        value, pos = _read_value(data, pos, depth + 1)
        values.append(value)
    if pos != end:
        raise _beyond_end()
    return values, end


def _read_value(data: bytes, pos: int, depth: int) -> tuple[object, int]:
    """Every length is a claim; reading beyond `data` raises, and a string is compared with its end."""
    kind = data[pos]
    pos += 1
    if kind in _SIZED:
        start = pos + 4
        end = start + _LENGTH.unpack_from(data, pos)[0]
        if end > len(data):
            raise _beyond_end()
        raw = data[start:end]
        if kind == _BYTES:
            return raw, end
        try:
            return raw.decode(), end
        except UnicodeDecodeError:
            return raw, end
    if kind == _VOID:
        return None, pos
    if (number := _NUMBERS.get(kind)) is not None:
        return number.unpack_from(data, pos)[0], pos + number.size
    if kind == _BOOL:
        return data[pos] != 0, pos + 1
    if kind == _TIME:
        return Timestamp(_SECONDS.unpack_from(data, pos)[0]), pos + _SECONDS.size
    if kind == _FIXED_POINT:
        scale, unscaled = _DECIMAL.unpack_from(data, pos)
        return Decimal(unscaled).scaleb(-scale), pos + _DECIMAL.size
    if depth > MAX_DEPTH:
        raise MalformedTable(f"tables are nested more than {MAX_DEPTH} deep")
    if kind == _TABLE:
        return _read_table(data, pos, depth)
    if kind == _ARRAY:
        return _read_array(data, pos, depth)
    raise MalformedTable(f"a value of the unknown type {chr(kind)!r}")


def _after_entries(data: bytes, pos: int, depth: int, *, named: bool) -> int:
    end: int = pos + 4 + _LENGTH.unpack_from(data, pos)[0]
    pos += 4
    while pos < end:
        if named:
            pos += 1 + data[pos]
        pos = _after_value(data, pos, depth + 1)
    if pos != end or end > len(data):
        raise _beyond_end()
    return end


def _after_value(data: bytes, pos: int, depth: int) -> int:
    kind = data[pos]
    if (size := _SIZES.get(kind)) is not None:
        return pos + size
    if kind in _SIZED:
        return pos + 5 + int.from_bytes(data[pos + 1 : pos + 5])
    if kind not in (_TABLE, _ARRAY):
        raise MalformedTable(f"a value of the unknown type {chr(kind)!r}")
    if depth > MAX_DEPTH:
        raise MalformedTable(f"tables are nested more than {MAX_DEPTH} deep")
    return _after_entries(data, pos + 1, depth, named=kind == _TABLE)


def _beyond_end() -> MalformedTable:
    return MalformedTable("a value goes beyond the end of its table")


def encode_table(table: Mapping[str, object]) -> bytes:
    entries = b"".join([encode_entry(name, value) for name, value in table.items()])
    return _LENGTH.pack(len(entries)) + entries


def encode_entry(name: str, value: object) -> bytes:
    encoded = name.encode(errors="replace")
    if len(encoded) > MAX_NAME:
        raise MalformedTable(f"a name of {len(encoded)} bytes, where {MAX_NAME} are allowed")
    return b"%c%b%b" % (len(encoded), encoded, encode_value(value))


def encode_value(value: object) -> bytes:
    """Integers as l, floats as d: the widest, so that no reader has to know how large a value is now."""
    match value:
        case str():
            return _sized(b"S", value.encode(errors="replace"))
        case bytes() | bytearray():
            return _sized(b"x", value)
        case bool():
            return b"t\x01" if value else b"t\x00"
        case Timestamp():
            return _fixed(_TIMESTAMP, b"T", value)
        case int():
            return _fixed(_LONG, b"l", value)
        case float():
            return _DOUBLE.pack(b"d", value)
        case None:
            return b"V"
        case Mapping():
            return b"F" + encode_table(value)
        case Decimal():
            return b"D" + _decimal(value)
        case Sequence():
            return _sized(b"A", b"".join([encode_value(entry) for entry in value]))
        case _:
            raise MalformedTable(f"a table cannot hold {type(value).__name__}")


def _sized(kind: bytes, data: bytes | bytearray) -> bytes:
    return kind + _LENGTH.pack(len(data)) + data


def _fixed(form: Struct, kind: bytes, value: int) -> bytes:
    try:
        return form.pack(kind, value)
    except StructError:
        raise MalformedTable(f"{value} does not fit 64 bits") from None


def _decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    if isinstance(exponent, int) and not sign:
        unscaled = int("".join(map(str, digits))) * 10 ** max(exponent, 0)
        scale = max(-exponent, 0)
        if unscaled < 1 << 32 and scale < 256:
            return _DECIMAL.pack(scale, unscaled)
    raise MalformedTable(f"{value} is no decimal that a table can hold")
