"""Records as JSON: one, a list of them, an object with such a list, or a line for each."""

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from posthouse.protocols.admin.ingest.sent_records import MOST_RECORDS, SentRecord
from posthouse.protocols.admin.payloads import SentEncoding, stored
from posthouse.protocols.admin.problems import Problem
from posthouse.protocols.admin.wrong_values import in_words

_INT64_MAX: Final = (1 << 63) - 1

PartitionNumber = Annotated[int, Meta(ge=0, le=(1 << 31) - 1, description="Number of the partition.")]
Timestamp = Annotated[int, Meta(ge=0, le=_INT64_MAX, description="Milliseconds since 1970.")]


class NewHeader(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    value: Any = None
    encoding: SentEncoding = "text"


class NewRecordBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    value: Annotated[Any, Meta(description="null for a tombstone.")]
    encoding: SentEncoding = "text"
    key: Any = None
    key_encoding: SentEncoding = "text"
    headers: Annotated[list[NewHeader], Meta(max_length=1000)] = []
    partition: Annotated[
        PartitionNumber | None, Meta(description="Chosen by the key if not given, as Kafka's clients do.")
    ] = None
    timestamp: Annotated[Timestamp | None, Meta(description="Now, if not given.")] = None


NewRecordList = Annotated[list[NewRecordBody], Meta(min_length=1, max_length=MOST_RECORDS)]


class NewRecords(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    records: NewRecordList


def records_of_json(body: bytes) -> Sequence[SentRecord]:
    """Raises Problem."""
    if not body:
        raise Problem(400, "the request has no body; send a record as JSON")
    if body.lstrip()[:1] == b"[":
        return _sent(_decoded(body, NewRecordList))
    fields = _decoded(body, dict[str, msgspec.Raw])
    if "records" in fields:
        return _sent(_decoded(body, NewRecords).records)
    return _sent([_decoded(body, NewRecordBody)])


def records_of_lines(body: bytes) -> Sequence[SentRecord]:
    """Raises Problem. Empty lines do not count."""
    found: list[NewRecordBody] = []
    for number, line in enumerate(body.split(b"\n"), 1):
        if not line.strip():
            continue
        if len(found) == MOST_RECORDS:
            raise Problem(400, f"a request may have at most {MOST_RECORDS} records")
        found.append(_decoded(line, NewRecordBody, f"line {number}"))
    if not found:
        raise Problem(400, "the body has no lines; send one record as JSON in each")
    return _sent(found)


def _decoded(body: bytes, wanted: Any, what: str = "the body") -> Any:
    try:
        return msgspec.json.decode(body, type=wanted)
    except msgspec.ValidationError as error:
        raise Problem(400, f"{what} is wrong: {in_words(error, wanted, 'field')}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, f"{what} is not valid JSON: {error}") from None


def _sent(records: Sequence[NewRecordBody]) -> list[SentRecord]:
    return [_record(number, each) for number, each in enumerate(records)]


def _record(number: int, record: NewRecordBody) -> SentRecord:
    return SentRecord(
        key=stored(record.key, record.key_encoding, f"key of record {number}"),
        value=stored(record.value, record.encoding, f"value of record {number}"),
        headers=tuple(
            (each.name, stored(each.value, each.encoding, f"header {each.name!r} of record {number}"))
            for each in record.headers
        ),
        partition=record.partition,
        timestamp=record.timestamp,
    )
