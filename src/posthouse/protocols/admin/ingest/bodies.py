"""Which form the body of a produce request has: its content type says so.

application/json                        a record, a list of records, or an object with such a list
application/x-ndjson                    a record in each line
application/cloudevents+json            a CloudEvent, structured
application/cloudevents-batch+json      a batch of CloudEvents
any, with headers ce-…                  a CloudEvent, binary
any other                               the value of one record, as it is
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Protocol

from msgspec import Meta

from posthouse.protocols.admin.body_reader import BodyReader
from posthouse.protocols.admin.ingest import cloud_events
from posthouse.protocols.admin.ingest.json_bodies import (
    NewRecordBody,
    NewRecordList,
    NewRecords,
    records_of_json,
    records_of_lines,
)
from posthouse.protocols.admin.ingest.sent_records import SentRecord, SentRecords
from posthouse.protocols.admin.payloads import stored
from posthouse.protocols.admin.problems import Problem
from posthouse.protocols.admin.request import HttpRequest
from posthouse.protocols.admin.response import JSON

IDEMPOTENCY_KEY: Final = "idempotency-key"
HEADER_PREFIX: Final = "posthouse-header-"
"""Before the name of a header of the record, if the body is its value."""
_OCTETS: Final = "application/octet-stream"
_LINES: Final = ("application/x-ndjson", "application/jsonl")
_EVENT: Final = "application/cloudevents+json"
_EVENTS: Final = "application/cloudevents-batch+json"
_KEY_PATTERN: Final = r"^[ -~]{1,255}$"
_KEY_FORM: Final = re.compile(_KEY_PATTERN + r"\Z")
_OF_RAW: Final = ("key", "key_encoding", "partition", "timestamp")


class RawParameters(Protocol):
    """The parameters of a request whose body is a value."""

    @property
    def raw(self) -> bool: ...
    @property
    def key(self) -> str | None: ...
    @property
    def key_encoding(self) -> Literal["text", "base64"]: ...
    @property
    def partition(self) -> int | None: ...
    @property
    def timestamp(self) -> int | None: ...


def _read(request: HttpRequest, parameters: RawParameters) -> SentRecords:
    return SentRecords(
        records=_records(request, parameters), idempotency_key=_idempotency_key(request.headers)
    )


def _records(request: HttpRequest, parameters: RawParameters) -> Sequence[SentRecord]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_event = cloud_events.is_binary_event(request.headers)
    if parameters.raw or not (is_event or kind in (JSON, "", *_LINES, _EVENT, _EVENTS)):
        return [_value(request, parameters)]
    if wrong := next((name for name in _OF_RAW if name in request.query), None):
        raise Problem(400, f"{wrong!r} is for bodies that are the value of a record; here records say it")
    if kind == _EVENT:
        return [cloud_events.record_of_structured(request.body)]
    if kind == _EVENTS:
        return cloud_events.records_of_batch(request.body)
    if is_event:
        return [cloud_events.record_of_binary(request.headers, request.body)]
    return records_of_lines(request.body) if kind in _LINES else records_of_json(request.body)


def _value(request: HttpRequest, parameters: RawParameters) -> SentRecord:
    headers: list[tuple[str, bytes | None]] = [
        (name.removeprefix(HEADER_PREFIX), value.encode("latin-1"))
        for name, value in request.headers.items()
        if name.startswith(HEADER_PREFIX)
    ]
    content_type = request.headers.get("content-type", _OCTETS)
    if content_type != _OCTETS:
        headers.append(("content-type", content_type.encode("latin-1")))
    return SentRecord(
        key=stored(parameters.key, parameters.key_encoding, "the key"),
        value=request.body,
        headers=tuple(headers),
        partition=parameters.partition,
        timestamp=parameters.timestamp,
    )


def _idempotency_key(headers: Mapping[str, str]) -> str | None:
    """A text, with or without the quotes of a structured header."""
    key = headers.get(IDEMPOTENCY_KEY)
    if key is None:
        return None
    if len(key) > 1 and key[0] == key[-1] == '"':
        key = key[1:-1]
    if not _KEY_FORM.match(key):
        raise Problem(400, "an idempotency key has 1 to 255 printable characters of ASCII")
    return key


RECORD_BODIES: Final[BodyReader[Any, SentRecords]] = BodyReader(
    read=_read,
    types={
        JSON: (NewRecords, NewRecordList, NewRecordBody),
        _LINES[0]: {"type": "string", "description": "A record as JSON in each line."},
        _EVENT: cloud_events.SCHEMA,
        _EVENTS: cloud_events.BATCH_SCHEMA,
        _OCTETS: {"description": "The value of one record."},
    },
    headers={
        IDEMPOTENCY_KEY: Annotated[
            str,
            Meta(
                pattern=_KEY_PATTERN,
                description="Names the request. Repeated with the same key it appends nothing, and is "
                "answered as the first time.",
            ),
        ]
    },
)
