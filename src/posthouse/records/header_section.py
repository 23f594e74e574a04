"""The headers of one record as they lie in a batch: a varint count, then names and values."""

from collections.abc import Iterable

from posthouse.model.errors import CorruptBatch
from posthouse.records.batch import Readable
from posthouse.records.builder import encode_headers
from posthouse.records.record import read_headers


def encode_section(headers: Iterable[tuple[str, Readable | None]]) -> bytes:
    return encode_headers(headers)


def decode_section(section: bytes) -> list[tuple[str, bytes | None]]:
    try:
        headers, end = read_headers(section, 0, len(section))
    except IndexError:
        raise CorruptBatch("headers are cut off") from None
    if end != len(section):
        raise CorruptBatch("bytes follow the headers")
    return list(headers)
