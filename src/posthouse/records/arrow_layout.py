"""Columns in Arrow's memory layout, without Arrow: plain buffers that Arrow can wrap without a copy.

    binary column   offsets    one more than rows; row i is data[offsets[i] : offsets[i + 1]]
                    data       all rows one after another
                    validity   one bit per row, lowest first; 0 is null; None: no row is null
    list column     offsets and validity as above, the elements are columns of their own

Numbers are in the machine's byte order, as Arrow has them in memory.
"""

from typing import NamedTuple

from posthouse.records.batch import Readable


class BinaryColumn(NamedTuple):
    """Strings or bytes. A tuple, because the compiled kernel unpacks it."""

    offsets: Readable
    data: Readable
    validity: Readable | None = None
    start: int = 0
    """The first row in these buffers, for a slice of a longer column."""
    wide: bool = False
    """Offsets of 64 bits instead of 32."""


class HeaderColumn(NamedTuple):
    """A list of (key, value) per row; a null list is an empty one."""

    offsets: Readable
    validity: Readable | None
    start: int
    wide: bool
    keys: BinaryColumn
    values: BinaryColumn


class DecodedColumns(NamedTuple):
    """Decoded columns. Columns that were not requested are None."""

    rows: int
    key: BinaryColumn | None
    value: BinaryColumn | None
    offsets: Readable | None
    timestamps: Readable | None
    """In µs since 1970, 64 bits each."""
    headers: HeaderColumn | None


class RecordColumns(NamedTuple):
    """Columns to encode."""

    rows: int
    key: BinaryColumn | None
    value: BinaryColumn | None
    timestamps: Readable
    """In µs since 1970, 64 bits each; records hold whole ms, so the remainder is cut off."""
    headers: HeaderColumn | None = None
