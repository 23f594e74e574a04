"""Decodes batches to columns in bulk: many batches become one set of Arrow buffers.

A record of a hundred bytes takes Python some microseconds and the compiled kernel less than a tenth of one.
So `_columns` is used if it could be compiled, otherwise, or with POSTHOUSE_PURE=1, `columns_pure`.
"""

import os
from enum import Flag
from typing import Protocol

from posthouse.model.errors import CorruptBatch
from posthouse.records import columns_pure
from posthouse.records.arrow_layout import BinaryColumn, DecodedColumns, HeaderColumn
from posthouse.records.batch import BatchHeader, Readable
from posthouse.records.compression import MAX_OUTPUT
from posthouse.records.record import body_in

_MAX_INT64 = (1 << 63) - 1

_Binary = tuple[Readable, Readable, Readable | None]
_Headers = tuple[Readable, _Binary, _Binary]
_Taken = tuple[int, _Binary | None, _Binary | None, Readable | None, Readable | None, _Headers | None]


class Wanted(Flag):
    """The columns to build; others are skipped."""

    KEY = columns_pure.KEY
    VALUE = columns_pure.VALUE
    OFFSET = columns_pure.OFFSET
    TIMESTAMP = columns_pure.TIMESTAMP
    HEADERS = columns_pure.HEADERS


class RowDecoder(Protocol):
    @property
    def rows(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    def append(self, body: Readable, header: BatchHeader, first: int, end: int, /) -> None: ...
    def take(self) -> _Taken: ...


class Kernel(Protocol):
    """The interface of `_columns` and `columns_pure`."""

    def Decoder(self, wanted: int, /) -> RowDecoder: ...  # a class in both
    def encode(
        self,
        key: BinaryColumn | None,
        value: BinaryColumn | None,
        headers: HeaderColumn | None,
        timestamps: Readable,
        rows: Readable,
        at: int,
        max_bytes: int,
        /,
    ) -> tuple[bytearray, int, int, int]: ...
    def partitions(self, keys: BinaryColumn, rows: int, partitions: int, keyless: int, /) -> Readable: ...
    def group(self, numbers: Readable, groups: int, /) -> list[Readable]: ...


def compiled_kernel() -> Kernel | None:
    """The compiled kernel, or None if there is none or POSTHOUSE_PURE is set."""
    if os.environ.get("POSTHOUSE_PURE") == "1":
        return None
    try:
        from posthouse.records import _columns
    except ImportError:
        return None
    return _columns


COMPILED = compiled_kernel()
KERNEL: Kernel = COMPILED or columns_pure


class ColumnBuffers:
    """Growing columns. They hold at most 2 GiB of data: take them long before that."""

    __slots__ = ("_decoder",)

    def __init__(self, wanted: Wanted, kernel: Kernel = KERNEL) -> None:
        self._decoder = kernel.Decoder(wanted.value)

    @property
    def rows(self) -> int:
        return self._decoder.rows

    @property
    def bytes(self) -> int:
        """The size of the collected keys, values and headers."""
        return self._decoder.bytes

    def append(
        self,
        batch: Readable,
        header: BatchHeader,
        first: int = 0,
        end: int | None = None,
        *,
        max_output: int = MAX_OUTPUT,
    ) -> None:
        """Append the records of one whole batch with first <= offset < end; all of them or, on an error,
        none.

        Every record of the batch is validated, also those outside the range. The checksum is not.
        """
        if header.base_offset + header.last_offset_delta > _MAX_INT64:
            raise CorruptBatch(f"offsets from {header.base_offset} on exceed 64 bits")
        body = body_in(batch, header, max_output=max_output)
        self._decoder.append(body, header, first, _MAX_INT64 if end is None else end)

    def take(self) -> DecodedColumns:
        """The collected columns; afterwards they are empty."""
        rows, key, value, offsets, timestamps, headers = self._decoder.take()
        return DecodedColumns(
            rows,
            BinaryColumn(*key) if key else None,
            BinaryColumn(*value) if value else None,
            offsets,
            timestamps,
            HeaderColumn(headers[0], None, 0, False, BinaryColumn(*headers[1]), BinaryColumn(*headers[2]))
            if headers
            else None,
        )
