"""Memory that was freed, and that the C library keeps for later."""

import ctypes
from collections.abc import Callable


def _trim() -> Callable[[int], int] | None:
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return None  # another C library than glibc, which does as it likes
    trim.argtypes, trim.restype = (ctypes.c_size_t,), ctypes.c_int
    return trim


_TRIM = _trim()


def give_back() -> None:
    """Return it to the system. Takes a millisecond or so: for when much was used that is not needed again."""
    if _TRIM is not None:
        _TRIM(0)
