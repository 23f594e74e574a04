"""Shared code of the generated modules: errors, the base class of messages, and rare branches.

The generated code has everything that ordinary, well-formed messages need; this module is for long varints,
tagged fields and errors.
"""

from typing import Final

Buffer = bytes | bytearray | memoryview

ZERO_UUID: Final = bytes(16)
NULL16: Final = b"\xff\xff"
NULL32: Final = b"\xff\xff\xff\xff"
# Tagged fields that one struct may carry, known and unknown together.
MAX_TAGS: Final = 64
# Bytes of a string, as in Kafka.
MAX_STRING: Final = 0x7FFF
# Elements of all arrays of one request together. An element may be one or two bytes on the wire and a few
# hundred as an object: this limit bounds the memory of large frames. It is enough to name a quarter of a
# million partitions.
MAX_ELEMENTS: Final = 1 << 18
# Records below this size are cheaper to copy into the current chunk than to send as a chunk of their own.
SMALL_RECORDS: Final = 512

new = object.__new__


class DecodeError(ValueError):
    """Malformed bytes. The sender is at fault; the connection is closed."""


class UnsupportedVersion(DecodeError):
    """An API or version that the codec does not support."""


class EncodeError(ValueError):
    """A value that this version cannot encode. The caller is at fault."""


class Message:
    """Base of all requests, responses and their parts: repr and equality of the fields."""

    __slots__: tuple[str, ...] = ()

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={_shown(getattr(self, name))}" for name in self.__slots__)
        return f"{type(self).__name__}({fields})"

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)


def _shown(value: object) -> str:
    """Records as their size: a log line should not contain a segment."""
    if isinstance(value, bytearray | memoryview) or (isinstance(value, bytes) and len(value) > 64):
        return f"<{len(value)} bytes>"
    return repr(value)


def read_long_uvarint(buf: memoryview, pos: int, first: int) -> tuple[int, int]:
    """The value and the position behind it; `first` (above 127) is the byte before `pos`."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            if value > 0xFFFF_FFFF:
                break
            return value, pos
    raise DecodeError(f"varint of more than 32 bits at byte {pos}")


def read_uvarint(buf: memoryview, pos: int) -> tuple[int, int]:
    value = buf[pos]
    if value < 128:
        return value, pos + 1
    return read_long_uvarint(buf, pos + 1, value)


def long_uvarint(value: int) -> bytes:
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x20_0000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def uvarint(value: int) -> bytes:
    return bytes((value,)) if value < 128 else long_uvarint(value)


def read_tag(buf: memoryview, pos: int, path: str) -> tuple[int, int, int]:
    """The tag of a tagged field, and the start and end of its value."""
    tag, pos = read_uvarint(buf, pos)
    length, pos = read_uvarint(buf, pos)
    end = pos + length
    if end > len(buf):
        raise bad_length(f"{path} tag {tag}", length, len(buf) - pos)
    return tag, pos, end


def skip_tags(buf: memoryview, pos: int, count: int, path: str) -> int:
    """The position behind `count` unknown tagged fields."""
    if count > MAX_TAGS:
        raise too_many_tags(path)
    for _ in range(count):
        _, _, pos = read_tag(buf, pos, path)
    return pos


def cut_short(name: str, pos: int, size: int) -> DecodeError:
    return DecodeError(f"{name} is cut short: a field at byte {pos} goes beyond the end at {size}")


def bad_text(path: str) -> DecodeError:
    return DecodeError(f"{path} is not UTF-8")


def bad_length(path: str, length: int, remaining: int) -> DecodeError:
    if length == -1:
        return DecodeError(f"{path} must not be null")
    if MAX_STRING < length <= remaining:
        return DecodeError(f"{path} declares {length} bytes where a string may have {MAX_STRING}")
    return DecodeError(f"{path} declares {length} bytes where {remaining} remain")


def bad_count(path: str, count: int, remaining: int, left: int = MAX_ELEMENTS) -> DecodeError:
    if count == -1:
        return DecodeError(f"{path} must not be null")
    if left < count <= remaining:
        return DecodeError(f"{path} declares {count} elements where {left} of {MAX_ELEMENTS} are left")
    return DecodeError(f"{path} declares {count} elements where {remaining} bytes remain")


def bad_tag(path: str, tag: int) -> DecodeError:
    return DecodeError(f"{path} tag {tag} does not have the length that it declares")


def too_many_tags(path: str) -> DecodeError:
    return DecodeError(f"{path} has more than {MAX_TAGS} tagged fields")


def trailing_bytes(name: str, count: int) -> DecodeError:
    return DecodeError(f"{count} bytes behind the end of {name}")


def unsupported_version(name: str, version: int) -> UnsupportedVersion:
    return UnsupportedVersion(f"{name} has no version {version} here")


def missing_value(path: str) -> EncodeError:
    return EncodeError(f"{path} must not be None in this version")
