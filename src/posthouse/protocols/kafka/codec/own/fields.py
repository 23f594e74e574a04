"""Fields that our own messages have in common: compact texts and lists, and the end of a message."""

from posthouse.protocols.kafka.codec.primitives import (
    MAX_ELEMENTS,
    MAX_STRING,
    bad_count,
    bad_length,
    bad_text,
    read_uvarint,
    skip_tags,
    trailing_bytes,
    uvarint,
)


def text(value: str) -> bytes:
    encoded = value.encode()
    return uvarint(len(encoded) + 1) + encoded


def read_text(buf: memoryview, pos: int, path: str) -> tuple[str, int]:
    length, pos = read_uvarint(buf, pos)
    length -= 1
    end = pos + length
    if length < 0 or length > MAX_STRING or end > len(buf):
        raise bad_length(path, length, len(buf) - pos)
    try:
        return str(buf[pos:end], "utf-8"), end
    except UnicodeDecodeError:
        raise bad_text(path) from None


def nullable_text(value: str | None) -> bytes:
    return b"\0" if value is None else text(value)


def read_nullable_text(buf: memoryview, pos: int, path: str) -> tuple[str | None, int]:
    return read_text(buf, pos, path) if buf[pos] else (None, pos + 1)


def sized_bytes(value: bytes) -> bytes:
    return uvarint(len(value) + 1) + value


def read_bytes(buf: memoryview, pos: int, path: str) -> tuple[bytes, int]:
    length, pos = read_uvarint(buf, pos)
    length -= 1
    end = pos + length
    if length < 0 or end > len(buf):
        raise bad_length(path, length, len(buf) - pos)
    return bytes(buf[pos:end]), end


def read_count(buf: memoryview, pos: int, smallest: int, path: str) -> tuple[int, int]:
    """The number of elements of a list, -1 for null. `smallest` is the least size of an element: a few bytes
    cannot declare a list that fills the memory."""
    count, pos = read_uvarint(buf, pos)
    count -= 1
    if count * smallest > len(buf) - pos or count > MAX_ELEMENTS:
        raise bad_count(path, count, len(buf) - pos)
    return count, pos


def read_end(buf: memoryview, pos: int, name: str) -> int:
    """Skip unknown tags; raises if bytes follow them."""
    tags = buf[pos]
    pos += 1
    if tags:
        pos = skip_tags(buf, pos, tags, name)
    if pos != len(buf):
        raise trailing_bytes(name, len(buf) - pos)
    return pos
