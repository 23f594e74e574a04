"""Records as consumers get them over HTTP: whole, and in the form in which they can be produced again."""

from base64 import b64encode
from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from posthouse.records.record import Record

BytesEncoding = Annotated[
    Literal["auto", "base64"],
    Meta(description="How keys, values and headers are written: UTF-8 as text, or all in base64."),
]
Written = Annotated[Literal["text", "base64"], Meta(description="How the bytes are written.")]


class ConsumedHeader(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    value: str | None
    encoding: Written = "text"


class ConsumedRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    partition: int
    offset: int
    timestamp: Annotated[int, Meta(description="Milliseconds since 1970; -1 if the record has none.")]
    key: str | None
    key_encoding: Written = "text"
    value: Annotated[str | None, Meta(description="null in a tombstone.")]
    encoding: Written = "text"
    headers: list[ConsumedHeader] = []


def consumed_record(partition: int, record: Record, encoding: BytesEncoding) -> ConsumedRecord:
    key, key_encoding = _written(record.key, encoding)
    value, value_encoding = _written(record.value, encoding)
    return ConsumedRecord(
        partition=partition,
        offset=record.offset,
        timestamp=record.timestamp,
        key=key,
        key_encoding=key_encoding,
        value=value,
        encoding=value_encoding,
        headers=list(_headers(record, encoding)),
    )


def _headers(record: Record, encoding: BytesEncoding) -> Iterator[ConsumedHeader]:
    for name, data in record.headers:
        value, written = _written(data, encoding)
        yield ConsumedHeader(name=name, value=value, encoding=written)


def _written(data: bytes | None, encoding: BytesEncoding) -> tuple[str | None, Literal["text", "base64"]]:
    if data is None:
        return None, "text"
    if encoding == "auto":
        try:
            return data.decode(), "text"
        except UnicodeDecodeError:
            pass  # then it is no text
    return b64encode(data).decode(), "base64"
