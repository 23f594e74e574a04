"""The wire format of Protocol Buffers: what the functions that are made for each message call.

A message is a run of fields: a tag, which is a varint of field number << 3 | wire type, and a value.

VARINT    7 bits a byte, the lowest first, the top bit set in all but the last; at most 64 bits in 10 bytes.
          A negative number is written as its two's complement of 64 bits.
FIXED32, FIXED64    4 or 8 bytes, little endian
LENGTH    a varint, and as many bytes

The readers take the position behind what is known already. They may read beyond the end of a message, yet not
of the data: the caller compares the position with the end afterwards. An IndexError means that the data ended
too early.
"""

from collections.abc import Mapping, Sequence, Set
from struct import Struct
from typing import Final

from posthouse.protocols.rocketmq.grpc.messages.errors import MalformedMessage
from posthouse.protocols.rocketmq.grpc.messages.fields import WireType

MOST_ELEMENTS: Final = 10_000
"""Of a repeated field, where two bytes become an object of a hundred; of a map; of the unknown fields of a
message; and of the pieces of its sub-messages. Without it 4 MiB of them keep the event loop for a second."""
_LARGEST_TAG: Final = (1 << 32) - 1
_LONGEST_TAG: Final = 5
_UINT64: Final = (1 << 64) - 1
_pack_five = Struct("5B").pack


def truncated() -> MalformedMessage:
    return MalformedMessage("a field is longer than its message")


def crowded(name: str) -> MalformedMessage:
    return MalformedMessage(f"there are more than {MOST_ELEMENTS} {name} fields")


def rest_of_varint(data: bytes, pos: int, value: int) -> tuple[int, int]:
    """`value` is the first byte, whose top bit is set. Unrolled up to 5 bytes: seconds since 1970 have 5."""
    byte = data[pos]
    value += (byte << 7) - 0x80
    if byte < 0x80:
        return value, pos + 1
    byte = data[pos + 1]
    value += (byte << 14) - 0x4000
    if byte < 0x80:
        return value, pos + 2
    byte = data[pos + 2]
    value += (byte << 21) - 0x20_0000
    if byte < 0x80:
        return value, pos + 3
    byte = data[pos + 3]
    value += (byte << 28) - 0x1000_0000
    if byte < 0x80:
        return value, pos + 4
    value -= 0x8_0000_0000
    pos += 4
    for shift in range(35, 70, 7):
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _UINT64, pos
    raise MalformedMessage("a varint of more than 10 bytes")


def rest_of_tag(data: bytes, pos: int, value: int) -> tuple[int, int]:
    tag, stop = rest_of_varint(data, pos, value)
    if tag > _LARGEST_TAG or stop - pos >= _LONGEST_TAG:
        raise MalformedMessage("a field number of more than 29 bits")
    return tag, stop


def _varint(data: bytes, pos: int) -> tuple[int, int]:
    value = data[pos]
    return (value, pos + 1) if value < 0x80 else rest_of_varint(data, pos + 1, value)


def skip(data: bytes, pos: int, end: int, tag: int) -> int:
    """The position behind a value that is not wanted: a field that is unknown here, or of another type."""
    if tag < 8:
        raise MalformedMessage("a field with the number 0")
    match tag & 7:
        case WireType.VARINT:
            _, pos = _varint(data, pos)
        case WireType.LENGTH:
            size, pos = _varint(data, pos)
            pos += size
        case WireType.FIXED32:
            pos += 4
        case WireType.FIXED64:
            pos += 8
        case 3 | 4:
            raise MalformedMessage(f"field {tag >> 3} is a group; RocketMQ has none")
        case unknown:
            raise MalformedMessage(f"field {tag >> 3} has the wire type {unknown}, which does not exist")
    if pos > end:
        raise truncated()
    return pos


def read_string_entry(data: bytes, pos: int, end: int) -> tuple[str, str]:
    """An entry of a map: a message of a key (1) and a value (2)."""
    if end - pos >= 4 and data[pos] == 0x0A:
        key_end = pos + 2 + data[pos + 1]
        if key_end < end - 1 and data[key_end] == 0x12 and data[pos + 1] < 0x80:
            value_at = key_end + 2
            if value_at + data[key_end + 1] == end and data[key_end + 1] < 0x80:
                return data[pos + 2 : key_end].decode(), data[value_at:end].decode()
    return _unusual_string_entry(data, pos, end)


def _unusual_string_entry(data: bytes, pos: int, end: int) -> tuple[str, str]:
    """Long ones, and entries with parts that are missing, unknown or not in their order."""
    key = value = ""
    while pos < end:
        tag, pos = _tag(data, pos)
        if tag not in (0x0A, 0x12):
            pos = skip(data, pos, end, tag)
            continue
        size, pos = _varint(data, pos)
        stop = pos + size
        if stop > end:
            raise truncated()
        text = data[pos:stop].decode()
        pos = stop
        if tag == 0x0A:
            key = text
        else:
            value = text
    if pos != end:
        raise truncated()
    return key, value


def _tag(data: bytes, pos: int) -> tuple[int, int]:
    tag = data[pos]
    return (tag, pos + 1) if tag < 0x80 else rest_of_tag(data, pos + 1, tag)


def merged(data: bytes, pos: int, end: int, messages: Set[int], rivals: Mapping[int, Sequence[int]]) -> bytes:
    """The same message, with each sub-message of `messages` (their tags) only once.

    Two sub-messages are merged by writing one after the other. A member of a oneof removes its `rivals` that
    came before it. The cost is that of the bytes, and not that of the pieces times the bytes.
    """
    whole = bytearray()
    contents: dict[int, bytearray] = {}
    pieces = 0
    while pos < end:
        begun = pos
        tag, pos = _tag(data, pos)
        for rival in rivals.get(tag, ()):
            contents.pop(rival, None)
        if tag not in messages:
            pos = skip(data, pos, end, tag)
            whole += data[begun:pos]
            continue
        pieces += 1
        if pieces > MOST_ELEMENTS:
            raise crowded("sub-message")
        size, pos = _varint(data, pos)
        stop = pos + size
        if stop > end:
            raise truncated()
        contents.setdefault(tag, bytearray()).extend(data[pos:stop])
        while pos < stop:  # a field that one piece begins must not end in the next
            tag, pos = _tag(data, pos)
            pos = skip(data, pos, stop, tag)
    for tag, content in contents.items():
        whole += varint(tag) + varint(len(content))
        whole += content
    return bytes(whole)


def varint(value: int) -> bytes:
    """Of a number from 0 to 64 bits."""
    if value < 0x80:
        return value.to_bytes(1)
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x20_0000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    if value < 0x1000_0000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14 & 0x7F | 0x80, value >> 21))
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def _five_bytes(value: int) -> bytes:
    """Of a number that needs as many, as seconds since 1970 and most nanoseconds do: in half the time."""
    return _pack_five(
        value & 0x7F | 0x80,
        value >> 7 & 0x7F | 0x80,
        value >> 14 & 0x7F | 0x80,
        value >> 21 & 0x7F | 0x80,
        value >> 28,
    )


def int32_varint(value: int) -> bytes:
    """A negative number has 64 bits here, too."""
    if 0x1000_0000 <= value <= 0x7FFF_FFFF:
        return _five_bytes(value)
    if -0x8000_0000 <= value < 0x1000_0000:
        return varint(value & _UINT64)
    raise MalformedMessage(f"{value} has more than 32 bits")


def int64_varint(value: int) -> bytes:
    if 0x1000_0000 <= value < 0x8_0000_0000:
        return _five_bytes(value)
    if -0x8000_0000_0000_0000 <= value <= 0x7FFF_FFFF_FFFF_FFFF:
        return varint(value & _UINT64)
    raise MalformedMessage(f"{value} has more than 64 bits")
