"""Freed memory that the C library still holds."""

import ctypes
from collections.abc import Callable


def _trim() -> Callable[[int], int] | None:
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return None  # not glibc: another C library decides by itself
    trim.argtypes, trim.restype = (ctypes.c_size_t,), ctypes.c_int
    return trim


_TRIM = _trim()


def trim_heap() -> None:
    """Return freed memory to the system. Takes about a millisecond: for use after a large temporary
    allocation."""
    if _TRIM is not None:
        _TRIM(0)
