"""The key of a waiting entry in memory: 32 bytes that sort in the order of firing.

    due in ms u64 | sequence 8 bytes | log u32 | offset u64 | size of the record u32

Bytes and not tuples, because there are tens of thousands: they take a third of the memory. A shorter key,
such as a time alone, sorts before all keys that begin with it.
"""

from struct import Struct
from typing import NamedTuple

_KEY = Struct(">Q8sIQI")
_DUE = Struct(">Q")
_LOG = _SIZE = Struct(">I")
_LOG_AT = 16
PLACE_SIZE = 28
"""Without the size at the end, which has no effect on the order."""

END = b"\xff" * 9
"""Sorts behind all keys."""


class Key(NamedTuple):
    due_ms: int
    sequence: bytes
    log: int
    offset: int
    size: int


def pack(due_ms: int, sequence: bytes, log: int, offset: int, size: int) -> bytes:
    return _KEY.pack(due_ms, sequence, log, offset, size)


def unpack(key: bytes) -> Key:
    return Key(*_KEY.unpack(key))


def before(due_ms: int) -> bytes:
    """A key that sorts before all entries due at this time, and behind all entries due earlier."""
    return _DUE.pack(due_ms)


def due_of(key: bytes) -> int:
    due_ms: int = _DUE.unpack_from(key)[0]
    return due_ms


def size_of(key: bytes) -> int:
    size: int = _SIZE.unpack_from(key, PLACE_SIZE)[0]
    return size


def log_of(key: bytes) -> int:
    log: int = _LOG.unpack_from(key, _LOG_AT)[0]
    return log
