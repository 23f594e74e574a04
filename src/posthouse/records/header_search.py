"""Records with a certain header, found without decoding the others.

The bytes of the header's name are searched for first, so a batch without it costs one pass of `bytes.find`.
Where they occur, records are stepped over by their lengths, and only those with a hit are parsed: the same
bytes may also lie in a key or a value.
"""

from collections.abc import Iterator
from typing import NamedTuple

from posthouse.model.errors import CorruptBatch
from posthouse.records.batch import BatchHeader
from posthouse.records.header_section import decode_section
from posthouse.records.varint import read_varint, read_varlong, write_varint

_MOST_HEADERS = 100
"""Of one record that are looked at: a record may have hundreds of thousands."""


class HeaderHit(NamedTuple):
    offset: int
    headers: list[tuple[bytes, bytes | None]]


def records_with_header(
    body: bytes, header: BatchHeader, name: bytes, *, most_records: int
) -> Iterator[HeaderHit]:
    """The records in `body` that have the header `name`, among the first `most_records`.

    Raises CorruptBatch for a malformed record where it has to be stepped over or parsed.
    """
    needle = write_varint(len(name)) + name
    hit = body.find(needle)
    pos, size = 0, len(body)
    try:
        for _ in range(min(header.count, most_records)):
            if hit < 0:
                return
            length, pos = read_varint(body, pos)
            end = pos + length
            if length <= 0 or end > size:
                raise CorruptBatch(f"record of {length} bytes in {size - pos}")
            if hit < end:
                delta, headers = _parsed(body, pos, end)
                if any(each == name for each, _ in headers):
                    yield HeaderHit(header.base_offset + delta, headers)
                hit = body.find(needle, end)
            pos = end
    except IndexError:
        raise CorruptBatch("records are cut off") from None


def _parsed(body: bytes, pos: int, end: int) -> tuple[int, list[tuple[bytes, bytes | None]]]:
    """Offset delta and headers of the record from `pos` (its attributes) to `end`."""
    _, pos = read_varlong(body, pos + 1)
    delta, pos = read_varint(body, pos)
    for _ in ("key", "value"):
        size, pos = read_varint(body, pos)
        pos += max(size, 0)
    return delta, decode_section(body[pos:end], _MOST_HEADERS)
