"""Fields of Protocol Buffers by their numbers: what can be told without a schema.

    message    fields, one after the other
    field      tag (varint: number << 3 | wire type), then by the wire type
               0 varint   1 eight bytes   2 length (varint) and bytes   5 four bytes

The bytes of wire type 2 are a text, a message or anything else: they are taken for the first of these that
they can be. Groups (3 and 4) are not used any more.
"""

from typing import Final, TypeAlias

_DEEPEST: Final = 16
_MOST_FIELDS: Final = 50_000

Fields: TypeAlias = dict[str, object]
"""By number. A field that comes several times has a list."""


class NoMessage(ValueError):
    """The bytes are no message."""


def message_of(payload: bytes) -> Fields | None:
    """The message of a payload of Confluent's serializers, which begins with the index of its type: mostly a
    zero. None if it is none."""
    try:
        return _Reading(payload).message(_after_indexes(payload), len(payload), 0)
    except NoMessage:
        return None


def _after_indexes(payload: bytes) -> int:
    count, position = _varint(payload, 0, len(payload))
    count = count >> 1 ^ -(count & 1)
    if not 0 <= count <= _DEEPEST:
        raise NoMessage
    for _ in range(count):
        _, position = _varint(payload, position, len(payload))
    return position


class _Reading:
    """Of one payload."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._fields = 0

    def message(self, position: int, end: int, depth: int) -> Fields:
        """Raises NoMessage."""
        found: dict[str, list[object]] = {}
        while position < end:
            self._fields += 1
            tag, position = _varint(self._data, position, end)
            if not tag >> 3 or self._fields > _MOST_FIELDS:
                raise NoMessage
            value, position = self._value(tag & 7, position, end, depth)
            found.setdefault(str(tag >> 3), []).append(value)
        return {number: values[0] if len(values) == 1 else values for number, values in found.items()}

    def _value(self, wire_type: int, position: int, end: int, depth: int) -> tuple[object, int]:
        if wire_type == 0:
            return _varint(self._data, position, end)
        if wire_type == 2:
            size, position = _varint(self._data, position, end)
            after = position + size
            if after > end:
                raise NoMessage
            return self._bytes(position, after, depth), after
        if wire_type not in (1, 5):
            raise NoMessage
        after = position + (8 if wire_type == 1 else 4)
        if after > end:
            raise NoMessage
        return int.from_bytes(self._data[position:after], "little"), after

    def _bytes(self, position: int, end: int, depth: int) -> object:
        data = self._data[position:end]
        try:
            text = data.decode()
            if text.isprintable():
                return text
        except UnicodeDecodeError:
            pass  # it may be a message
        if depth < _DEEPEST:
            try:
                return self.message(position, end, depth + 1)
            except NoMessage:
                pass  # it is shown as hex
        return data.hex()


def _varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while position < end and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise NoMessage
