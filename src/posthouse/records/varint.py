"""Zigzag variable-length integers: seven bits a byte, lowest first; the sign is in the lowest bit.

Callers inline the short cases by the tables here; the functions are the slow path for the rest.
"""

from posthouse.model.errors import CorruptBatch

_MAX_VARINT = 0xFFFFFFFF
_MAX_VARLONG = 0xFFFFFFFFFFFFFFFF

ONE_BYTE: tuple[int | None, ...] = (*(raw >> 1 ^ -(raw & 1) for raw in range(128)), *[None] * 128)
"""The values of numbers of one byte; None where more bytes follow."""
TWO_BYTES: tuple[int, ...] = tuple(raw >> 1 ^ -(raw & 1) for raw in range(1 << 14))
"""The values of the 14 bits of numbers of up to two bytes."""


def read_varint(data: bytes, pos: int) -> tuple[int, int]:
    """A 32-bit value and the position after it. IndexError when `data` ends too early."""
    low = data[pos]
    if low < 0x80:
        return low >> 1 ^ -(low & 1), pos + 1
    high = data[pos + 1]
    if high < 0x80:
        raw = high << 7 | low & 0x7F
        return raw >> 1 ^ -(raw & 1), pos + 2
    return _read(data, pos, 35, _MAX_VARINT)


def read_varlong(data: bytes, pos: int) -> tuple[int, int]:
    """A 64-bit value and the position after it. IndexError when `data` ends too early."""
    return _read(data, pos, 70, _MAX_VARLONG)


def _read(data: bytes, pos: int, max_shift: int, max_raw: int) -> tuple[int, int]:
    raw = shift = 0
    while shift < max_shift:
        byte = data[pos]
        pos += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw > max_raw:
                break
            return raw >> 1 ^ -(raw & 1), pos
        shift += 7
    raise CorruptBatch("variable-length integer is too long")


def write_varint(value: int) -> bytes:
    """Any value of up to 64 bits."""
    raw = value << 1 if value >= 0 else ~(value << 1)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)
