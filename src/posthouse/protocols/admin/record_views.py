"""Records as the JSON API shows them. A view has a bounded size, whatever a producer packed into it."""

from dataclasses import dataclass
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from posthouse.protocols.admin.payloads import KnownSchemas, Payload, shown
from posthouse.records.record import Headers, Record

LARGEST_VIEW: Final = 4 * 1024 * 1024
"""Bytes of JSON. A view that would be longer is cut to the sizes below."""
_CUT_BYTES = 8 * 1024
_CUT_NAME = 250
_MOST_CUT_HEADERS = 50


class HeaderView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: Payload | None


class RecordView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    partition: int
    offset: int
    timestamp: Annotated[int, Meta(description="Milliseconds since 1970; -1 if the record has none.")]
    key: Payload | None
    value: Annotated[Payload | None, Meta(description="null in a tombstone.")]
    headers: list[HeaderView]
    more_headers: Annotated[int, Meta(description="Headers that there is no room to show.")] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRecord:
    view: RecordView
    size: int
    """Bytes of JSON."""


def shown_record(partition: int, record: Record, limit: int, schemas: KnownSchemas) -> ShownRecord:
    """Keys, values and headers of more than `limit` bytes are cut."""
    view = _view(partition, record, record.headers, limit, schemas)
    size = len(msgspec.json.encode(view))
    if size > LARGEST_VIEW:
        few = tuple((name[:_CUT_NAME], value) for name, value in record.headers[:_MOST_CUT_HEADERS])
        view = _view(partition, record, few, min(limit, _CUT_BYTES), schemas)
        size = len(msgspec.json.encode(view))
    return ShownRecord(view=view, size=size)


def _view(partition: int, record: Record, headers: Headers, limit: int, schemas: KnownSchemas) -> RecordView:
    return RecordView(
        partition=partition,
        offset=record.offset,
        timestamp=record.timestamp,
        key=shown(record.key, limit, schemas),
        value=shown(record.value, limit, schemas),
        headers=[HeaderView(name=name, value=shown(value, limit)) for name, value in headers],
        more_headers=len(record.headers) - len(headers),
    )
