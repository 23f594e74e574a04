"""Avro's binary encoding, by the schema that it was written with.

    null         nothing
    boolean      1 byte
    int, long    zigzag varint
    float        4 bytes, lowest first; double: 8
    bytes        length (long), then bytes; string: the same in UTF-8
    fixed        its bytes
    enum         number of the symbol (int)
    union        number of the type (long), then the value
    record       the values of its fields, in their order
    array, map   blocks: count (long; negative: the size in bytes follows), then items, or keys and values;
                 a block with count 0 ends it

Schemas and payloads are what clients made of them: the depth of values and their number are bounded. Numbers
that stand for a date or a time are shown as the numbers that they are.
"""

from collections.abc import Callable, Iterator, Mapping
from struct import Struct
from typing import Any, Final

import msgspec

from posthouse.model.errors import CorruptBatch
from posthouse.records.varint import read_varlong

_MOST_VALUES: Final = 50_000
_DEEPEST: Final = 64
_FLOAT: Final = Struct("<f")
_DOUBLE: Final = Struct("<d")
_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
_LARGEST_SCALE: Final = 1000
_LARGEST_DECIMAL: Final = 256
"""Bytes. To write a very large number in digits takes very long."""

Schema = Any
"""A part of a schema, as JSON has it: the name of a type, a list of types, or an object."""


class MalformedAvro(ValueError):
    """A schema that is none, or a payload that does not fit it. The message says what is wrong."""


class AvroSchema:
    def __init__(self, text: str) -> None:
        """Raises MalformedAvro."""
        try:
            self._root: Schema = msgspec.json.decode(text)
        except (ValueError, RecursionError):
            raise MalformedAvro("the schema is not valid JSON") from None
        self._named: dict[str, Schema] = {}
        self._collect(self._root, "", 0)

    def decode(self, payload: bytes) -> object:
        """Raises MalformedAvro."""
        reading = _Reading(payload, self._named)
        try:
            value = reading.value(self._root, "", 0)
        except (IndexError, UnicodeDecodeError, CorruptBatch, KeyError, TypeError, AttributeError):
            raise MalformedAvro("the payload does not fit the schema") from None
        if reading.position != len(payload):
            raise MalformedAvro("the payload is longer than the schema says")
        return value

    def _collect(self, schema: Schema, namespace: str, depth: int) -> None:
        """Types with a name may be used by it anywhere later on."""
        if depth > _DEEPEST:
            raise MalformedAvro("the schema is nested too deep")
        if isinstance(schema, list):
            for each in schema:
                self._collect(each, namespace, depth + 1)
        elif isinstance(schema, dict):
            if schema.get("type") in _NAMED:
                name = _full_name(schema, namespace)
                namespace = name.rpartition(".")[0]
                self._named[name] = schema
            for inner in _inner(schema):
                self._collect(inner, namespace, depth + 1)


def _inner(schema: Mapping[str, Any]) -> Iterator[Schema]:
    if isinstance(schema.get("type"), dict | list):
        yield schema["type"]
    yield from (schema[name] for name in ("items", "values") if name in schema)
    fields = schema.get("fields")
    if isinstance(fields, list):
        yield from (each["type"] for each in fields if isinstance(each, dict) and "type" in each)


def _full_name(schema: Mapping[str, Any], namespace: str) -> str:
    name = str(schema.get("name", ""))
    namespace = str(schema.get("namespace", namespace) or "")
    return name if "." in name or not namespace else f"{namespace}.{name}"


class _Reading:
    """Of one payload."""

    def __init__(self, data: bytes, named: Mapping[str, Schema]) -> None:
        self._data = data
        self._named = named
        self._values = 0
        self.position = 0

    def value(self, schema: Schema, namespace: str, depth: int) -> object:
        self._values += 1
        if self._values > _MOST_VALUES or depth > _DEEPEST:
            raise MalformedAvro(f"the payload has more than {_MOST_VALUES} values, or is nested too deep")
        if isinstance(schema, list):
            return self.value(schema[self._index(len(schema))], namespace, depth + 1)
        if isinstance(schema, str):
            return self._of_name(schema, namespace, depth)
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.value(kind, namespace, depth + 1)
        read = _COMPLEX.get(kind)
        if read is not None:
            return read(self, schema, _namespace_of(schema, kind, namespace), depth + 1)
        value = self._of_name(kind, namespace, depth)
        return _decimal(value, schema) if isinstance(value, bytes) else value

    def _of_name(self, name: str, namespace: str, depth: int) -> object:
        read = _PRIMITIVE.get(name)
        if read is not None:
            return read(self)
        for full in (f"{namespace}.{name}" if namespace else name, name):
            if full in self._named:
                return self.value(self._named[full], namespace, depth + 1)
        raise MalformedAvro(f"the schema refers to {name!r}, which is not in it")

    def long(self) -> int:
        value, self.position = read_varlong(self._data, self.position)
        return value

    def take(self, size: int) -> bytes:
        end = self.position + size
        if size < 0 or end > len(self._data):
            raise MalformedAvro("the payload ends too early")
        taken = self._data[self.position : end]
        self.position = end
        return taken

    def _index(self, count: int) -> int:
        index = self.long()
        if not 0 <= index < count:
            raise MalformedAvro("the payload does not fit the schema")
        return index

    def enum(self, schema: Mapping[str, Any], namespace: str, depth: int) -> object:
        return schema["symbols"][self._index(len(schema["symbols"]))]

    def fixed(self, schema: Mapping[str, Any], namespace: str, depth: int) -> object:
        return _decimal(self.take(schema["size"]), schema)

    def record(self, schema: Mapping[str, Any], namespace: str, depth: int) -> object:
        return {str(field["name"]): self.value(field["type"], namespace, depth) for field in schema["fields"]}

    def array(self, schema: Mapping[str, Any], namespace: str, depth: int) -> object:
        return [self.value(schema["items"], namespace, depth) for _ in self._items()]

    def map(self, schema: Mapping[str, Any], namespace: str, depth: int) -> object:
        found = {}
        for _ in self._items():
            key = self.take(self.long()).decode()
            found[key] = self.value(schema["values"], namespace, depth)
        return found

    def _items(self) -> Iterator[None]:
        while count := self.long():
            if count < 0:
                count = -count
                self.long()
            for _ in range(count):
                yield


def _namespace_of(schema: Mapping[str, Any], kind: str, namespace: str) -> str:
    return _full_name(schema, namespace).rpartition(".")[0] if kind in _NAMED else namespace


def _decimal(value: bytes, schema: Mapping[str, Any]) -> object:
    if schema.get("logicalType") != "decimal":
        return value
    scale = schema.get("scale", 0)
    if not isinstance(scale, int) or not 0 <= scale <= _LARGEST_SCALE or len(value) > _LARGEST_DECIMAL:
        return value
    number = int.from_bytes(value, "big", signed=True)
    digits = str(abs(number)).rjust(scale + 1, "0")
    whole, fraction = digits[: len(digits) - scale], digits[len(digits) - scale :]
    return f"{'-' if number < 0 else ''}{whole}{f'.{fraction}' if fraction else ''}"


_PRIMITIVE: Final[Mapping[str, Callable[[_Reading], object]]] = {
    "null": lambda reading: None,
    "boolean": lambda reading: reading.take(1) != b"\x00",
    "int": _Reading.long,
    "long": _Reading.long,
    "float": lambda reading: _FLOAT.unpack(reading.take(_FLOAT.size))[0],
    "double": lambda reading: _DOUBLE.unpack(reading.take(_DOUBLE.size))[0],
    "bytes": lambda reading: reading.take(reading.long()),
    "string": lambda reading: reading.take(reading.long()).decode(),
}
_COMPLEX: Final[Mapping[str, Callable[[_Reading, Mapping[str, Any], str, int], object]]] = {
    "array": _Reading.array,
    "enum": _Reading.enum,
    "error": _Reading.record,
    "fixed": _Reading.fixed,
    "map": _Reading.map,
    "record": _Reading.record,
}
