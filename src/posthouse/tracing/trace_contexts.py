"""W3C trace contexts in record headers: which of them a batch or a hand of messages carries.

AMQP messages need no code of their own: their headers are record headers in the log.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from posthouse.model.errors import CorruptBatch, PosthouseError
from posthouse.records.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    BatchHeader,
    Readable,
    iter_headers,
    parse_header,
)
from posthouse.records.compression import Codec
from posthouse.records.header_search import HeaderHit, records_with_header
from posthouse.records.header_section import decode_section
from posthouse.records.record import body_of

TRACEPARENT: Final = b"traceparent"
_TRACESTATE: Final = b"tracestate"

MOST_BODY_BYTES: Final = 4 * 1024 * 1024
"""A batch with more bytes of records, decompressed, is not traced."""
MOST_RECORDS: Final = 10_000
"""Of one batch that are searched."""
MOST_CONTEXTS: Final = 512
"""Of one batch, fetched partition or hand of messages that get spans."""
_QUICKLY_SEARCHED: Final = 256 * 1024
"""Bytes of uncompressed batches that are searched on the event loop, in 80 µs: a job costs more."""
_LOW_ATTRIBUTES_AT: Final = ATTRIBUTES_AT + 1
_MOST_HEADERS: Final = 100
_LONGEST_PARENT: Final = 512
_LONGEST_STATE: Final = 512

_SAMPLED: Final = re.compile(rb"[ \t]*[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f][13579bdf](?:-.*|[ \t]*)")
"""The lowest bit of the flags says that the trace is sampled. OpenTelemetry checks the rest."""


class TraceContext(NamedTuple):
    """As the headers have it, not checked yet. A tuple, because it is a key of dictionaries."""

    traceparent: bytes
    tracestate: bytes


@dataclass(slots=True)
class Occurrence:
    """The messages of one trace context."""

    attributes: Mapping[str, str | int | bool]
    """Of the first one, for its span."""
    count: int = 1


@dataclass(slots=True)
class FoundContexts:
    contexts: dict[TraceContext, Occurrence]
    records: int
    """With those that carry no context."""


class Delivered(NamedTuple):
    """A message as it was when its queue handed it out. A tuple, because one is made on the event loop for
    every message that carries a context."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    headers: bytes
    redelivered: bool


def sampled_context(headers: Sequence[tuple[bytes, bytes | None]]) -> TraceContext | None:
    """The last header of a name counts, as in Kafka."""
    named = dict(headers)
    parent = named.get(TRACEPARENT)
    if parent is None or len(parent) > _LONGEST_PARENT or not _SAMPLED.fullmatch(parent):
        return None
    state = named.get(_TRACESTATE) or b""
    return TraceContext(parent, state if len(state) <= _LONGEST_STATE else b"")


def contexts_of_delivery(messages: Iterable[Delivered], now_ms: int) -> dict[TraceContext, Occurrence]:
    found: dict[TraceContext, Occurrence] = {}
    for message in messages:
        try:
            context = sampled_context(decode_section(message.headers, _MOST_HEADERS))
        except CorruptBatch:
            continue
        if context is not None:
            _add(found, context, _attributes_of(message, now_ms))
    return found


def _attributes_of(message: Delivered, now_ms: int) -> dict[str, str | int | bool]:
    return {
        "messaging.destination_publish.name": message.topic,
        "messaging.destination.partition.id": str(message.partition),
        "messaging.kafka.offset": message.offset,
        "posthouse.message.age_ms": max(now_ms - message.timestamp, 0),
        "posthouse.message.redelivered": message.redelivered,
    }


def may_carry_contexts(batches: Iterable[Readable]) -> bool:
    """Whether to look into them, as far as that is known at once: for most requests it is."""
    size = 0
    for batch in batches:
        size += len(batch)
        if size > _QUICKLY_SEARCHED or len(batch) <= _LOW_ATTRIBUTES_AT:
            return True
        if batch[_LOW_ATTRIBUTES_AT] & CODEC_MASK or TRACEPARENT in bytes(batch):
            return True
    return False


def contexts_in_batch(batch: Readable, base_offset: int | None) -> FoundContexts:
    """Of a batch that a producer sent, which may be malformed: then there are none.

    A batch that was refused has no `base_offset`.
    """
    found = FoundContexts({}, 0)
    try:
        header = parse_header(batch)._replace(base_offset=base_offset or 0)
        found.records = header.count
        for hit in _hits(batch, header):
            context = sampled_context(hit.headers)
            if context is not None:
                place = {} if base_offset is None else _offset(hit.offset)
                _add(found.contexts, context, place)
    except PosthouseError:
        found.contexts.clear()
    return found


def contexts_in_slice(data: Readable, wanted: Sequence[range]) -> FoundContexts:
    """Of batches as they are stored; only records with the `wanted` offsets count."""
    found = FoundContexts({}, 0)
    view = memoryview(data)
    try:
        for pos, header in iter_headers(view):
            if not header.is_control:
                found.records += _wanted_of(header, wanted)
                for hit in _hits(view[pos : pos + header.length], header):
                    context = sampled_context(hit.headers)
                    if context is not None and any(hit.offset in each for each in wanted):
                        _add(found.contexts, context, _offset(hit.offset))
    except PosthouseError:
        pass  # what cannot be decoded is not traced; the client that fetched it finds out itself
    return found


def _wanted_of(header: BatchHeader, wanted: Sequence[range]) -> int:
    """Offsets of the batch that are wanted. In a compacted batch some of them have no record."""
    first, end = header.base_offset, header.last_offset + 1
    offsets = sum(max(0, min(each.stop, end) - max(each.start, first)) for each in wanted)
    return min(offsets, header.count)


def _hits(batch: Readable, header: BatchHeader) -> Iterator[HeaderHit]:
    if header.codec is Codec.NONE and header.length > MOST_BODY_BYTES:
        return iter(())
    body = body_of(batch, header, max_output=MOST_BODY_BYTES)
    return records_with_header(body, header, TRACEPARENT, most_records=MOST_RECORDS)


def _offset(offset: int) -> dict[str, str | int | bool]:
    return {"messaging.kafka.offset": offset}


def _add(
    found: dict[TraceContext, Occurrence], context: TraceContext, attributes: dict[str, str | int | bool]
) -> None:
    known = found.get(context)
    if known is not None:
        known.count += 1
    elif len(found) < MOST_CONTEXTS:
        found[context] = Occurrence(attributes)
