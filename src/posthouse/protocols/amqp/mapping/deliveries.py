"""Records of the log as AMQP consumers get them."""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, NamedTuple, TypeGuard

from posthouse.broker.queues.record_headers import WEBHOOK
from posthouse.model.errors import CorruptBatch
from posthouse.protocols.amqp.codec.tables import MAX_NAME, MalformedTable, check_table, encode_entry
from posthouse.protocols.amqp.mapping.deaths import with_deaths
from posthouse.protocols.amqp.mapping.errors import MalformedProperties
from posthouse.protocols.amqp.mapping.properties import NO_PROPERTIES, Flag, spans
from posthouse.protocols.amqp.mapping.readable import DEATHS, EXCHANGE, PROPERTIES
from posthouse.records.header_section import decode_section

# A content header is one frame. Headers of records of other protocols beyond this are left out.
MAX_TABLE: Final = 64 * 1024

_HEADERS_ONLY = Struct(">HI")
_TIMESTAMP = Struct(">Q")


class Delivery(NamedTuple):
    exchange: bytes
    properties: bytes


class Unplaced(NamedTuple):
    """A message whose record does not name its exchange: a dead letter, or a record of another protocol."""

    properties: bytes
    is_foreign: bool
    """Of another protocol: the message gets the timestamp of the record."""


def delivery_of(section: bytes) -> Delivery | Unplaced:
    """`section` has the record's headers, encoded."""
    try:
        return _read_quickly(section) or _read_all(decode_section(section))
    except CorruptBatch:
        # Headers are as their producer wrote them. Unreadable ones do not keep the message from consumers.
        return Unplaced(NO_PROPERTIES, True)


def _read_quickly(section: bytes) -> Delivery | None:
    """Of a message that was published by AMQP and is no dead letter, the first two headers are enough."""
    if DEATHS in section:
        return None
    headers = decode_section(section, 2)
    names = [name for name, _ in headers]
    if names == [EXCHANGE, PROPERTIES]:
        exchange, properties = headers[0][1], headers[1][1]
    elif names[:1] == [EXCHANGE] and PROPERTIES not in section:
        exchange, properties = headers[0][1], NO_PROPERTIES
    else:
        return None
    return Delivery(exchange, properties) if _is_name(exchange) and _is_sound(properties) else None


def _read_all(headers: Sequence[tuple[bytes, bytes | None]]) -> Delivery | Unplaced:
    # The first of a name counts: our headers come before all others.
    ours = {name: value for name, value in reversed(headers) if name in (EXCHANGE, PROPERTIES, DEATHS)}
    exchange = ours.get(EXCHANGE)
    properties = ours.get(PROPERTIES, NO_PROPERTIES)
    note = ours.get(DEATHS)
    if not _is_name(exchange) or not _is_sound(properties):
        properties = _table_of(headers)
        return Unplaced(properties if note is None else with_deaths(properties, note), True)
    if note is None:
        return Delivery(exchange, properties)
    return Unplaced(with_deaths(properties, note, _answers(headers)), False)


def _answers(headers: Iterable[tuple[bytes, bytes | None]]) -> dict[str, str]:
    """What a webhook has noted on its dead letter, as x-webhook-status and so on."""
    return {
        "x-webhook-" + name[len(WEBHOOK) :].decode(errors="replace"): value.decode(errors="replace")
        for name, value in headers
        if value and name.startswith(WEBHOOK) and len(name) < MAX_NAME
    }


def _is_name(exchange: bytes | None) -> TypeGuard[bytes]:
    return exchange is not None and len(exchange) <= MAX_NAME


def _is_sound(properties: bytes | None) -> TypeGuard[bytes]:
    """Whether a client could read it: records of other protocols may have headers with our names."""
    try:
        place = spans(properties or b"").get(Flag.HEADERS)
        return place is None or check_table(properties or b"", place[0]) == place[1]
    except (MalformedProperties, MalformedTable):
        return False


def _table_of(headers: Iterable[tuple[bytes, bytes | None]]) -> bytes:
    """A property list with these headers only. The last of a name counts, as in Kafka."""
    entries: dict[str, bytes] = {}
    size = 0
    for raw_name, value in headers:
        name = raw_name.decode(errors="replace")
        if raw_name == DEATHS or len(name.encode()) > MAX_NAME:
            continue
        entry = encode_entry(name, _text_or_bytes(value))
        if size + len(entry) <= MAX_TABLE:
            size += len(entry)
            entries[name] = entry
    if not entries:
        return NO_PROPERTIES
    table = b"".join(entries.values())
    return _HEADERS_ONLY.pack(Flag.HEADERS, len(table)) + table


def _text_or_bytes(value: bytes | None) -> str | bytes | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return value


def with_timestamp(properties: bytes, seconds: int) -> bytes:
    """The timestamp is the last property: a record of another protocol has no other but the headers."""
    flags = int.from_bytes(properties[:2]) | Flag.TIMESTAMP
    return flags.to_bytes(2) + properties[2:] + _TIMESTAMP.pack(seconds)
