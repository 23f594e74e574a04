"""The encoded headers of one record: a varint count, then names and values. See `record`."""

from collections.abc import Sequence
from typing import Final

from posthouse.model.errors import CorruptBatch
from posthouse.records.varint import read_varint, write_varint

_SMALL_LIMIT: Final = 4096
_SMALL: Final = tuple(write_varint(value) for value in range(_SMALL_LIMIT))
_NULL: Final = write_varint(-1)
_LONGER: Final = 0x80
"""A varint that goes on behind its first byte; in others the last bit is the sign."""


def encode_section(headers: Sequence[tuple[bytes, bytes | None]]) -> bytes:
    parts = [_size(len(headers))]
    for name, value in headers:
        if value is None:
            parts += (_size(len(name)), name, _NULL)
        else:
            parts += (_size(len(name)), name, _size(len(value)), value)
    return b"".join(parts)


def with_first(section: bytes, name: bytes, value: bytes) -> bytes:
    """The section with one more header before the others. Raises CorruptBatch for an invalid one."""
    try:
        count, pos = read_varint(section, 0)
    except IndexError:
        raise CorruptBatch("headers are cut off") from None
    return b"".join((_size(count + 1), _size(len(name)), name, _size(len(value)), value, section[pos:]))


def _size(value: int) -> bytes:
    return _SMALL[value] if value < _SMALL_LIMIT else write_varint(value)


def decode_section(section: bytes, at_most: int | None = None) -> list[tuple[bytes, bytes | None]]:
    """Names and values of all or the first headers. Raises CorruptBatch for invalid bytes."""
    headers: list[tuple[bytes, bytes | None]] = []
    end = len(section)
    try:
        count, pos = read_varint(section, 0)
        for _ in range(count if at_most is None else min(count, at_most)):
            # Inlined for lengths of one byte, as nearly all are: this runs for every message of a pull.
            size = section[pos]
            if size < _LONGER and not size & 1:
                size >>= 1
                pos += 1
            else:
                size, pos = read_varint(section, pos)
            name = b"" if size < 0 else section[pos : pos + size]
            pos += max(size, 0)
            size = section[pos]
            if size < _LONGER and not size & 1:
                size >>= 1
                pos += 1
            else:
                size, pos = read_varint(section, pos)
            headers.append((name, None if size < 0 else section[pos : pos + size]))
            pos += max(size, 0)
            if pos > end:
                raise IndexError
    except IndexError:
        raise CorruptBatch("headers are cut off") from None
    return headers
