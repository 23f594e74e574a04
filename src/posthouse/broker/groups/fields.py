"""Fields of stored values, one after the other: numbers big-endian, texts and bytes behind their size.

number       i64                     seconds   f64
flag         u8, 0 or 1              bytes     size u32 | bytes
text         bytes in UTF-8          list      count u32 | items
optional …   flag | … if it is 1
"""

import struct
from collections.abc import Callable, Iterable
from typing import TypeVar

from posthouse.model.errors import DataDamaged

ItemT = TypeVar("ItemT")

_NUMBER = struct.Struct(">q")
_SECONDS = struct.Struct(">d")
_SIZE = struct.Struct(">I")


class FieldWriter:
    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def value(self) -> bytes:
        return b"".join(self._parts)

    def number(self, value: int) -> None:
        self._parts.append(_NUMBER.pack(value))

    def seconds(self, value: float) -> None:
        self._parts.append(_SECONDS.pack(value))

    def flag(self, value: bool) -> None:
        self._parts.append(b"\1" if value else b"\0")

    def fixed(self, value: bytes) -> None:
        """Bytes whose size the reader knows."""
        self._parts.append(value)

    def bytes(self, value: bytes) -> None:
        self._parts += (_SIZE.pack(len(value)), value)

    def text(self, value: str) -> None:
        self.bytes(value.encode())

    def optional(self, value: ItemT | None, write: Callable[[ItemT], None]) -> None:
        self.flag(value is not None)
        if value is not None:
            write(value)

    def list(self, items: Iterable[ItemT], write: Callable[[ItemT], None]) -> None:
        values = tuple(items)
        self._parts.append(_SIZE.pack(len(values)))
        for each in values:
            write(each)


class FieldReader:
    """Raises DataDamaged where the value cannot be what a writer has written."""

    def __init__(self, value: bytes) -> None:
        self._value = value
        self._at = 0

    def end(self) -> None:
        if self._at != len(self._value):
            raise DataDamaged("a stored value is longer than its fields")

    def number(self) -> int:
        [value] = _NUMBER.unpack(self.fixed(_NUMBER.size))
        return int(value)

    def seconds(self) -> float:
        [value] = _SECONDS.unpack(self.fixed(_SECONDS.size))
        if not 0 <= value < float("inf"):
            raise DataDamaged(f"a stored value has {value} seconds")
        return float(value)

    def flag(self) -> bool:
        value = self.fixed(1)[0]
        if value > 1:
            raise DataDamaged(f"a stored value has the flag {value}")
        return value == 1

    def fixed(self, size: int) -> bytes:
        found = self._value[self._at : self._at + size]
        if len(found) < size:
            raise DataDamaged("a stored value ends too early")
        self._at += size
        return found

    def bytes(self) -> bytes:
        return self.fixed(self._size())

    def text(self) -> str:
        try:
            return self.bytes().decode()
        except UnicodeDecodeError as damage:
            raise DataDamaged("a stored text is not UTF-8") from damage

    def optional(self, read: Callable[[], ItemT]) -> ItemT | None:
        return read() if self.flag() else None

    def list(self, read: Callable[[], ItemT]) -> tuple[ItemT, ...]:
        """An item has at least one byte, so a damaged count ends with the value."""
        return tuple(read() for _ in range(self._size()))

    def _size(self) -> int:
        [size] = _SIZE.unpack(self.fixed(_SIZE.size))
        return int(size)
