"""Messages of a partition from an offset on, as one consumer wants them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from posthouse.broker.broker import Broker
from posthouse.broker.filters.filter import Filter
from posthouse.broker.subscriptions.batches import aborted_in
from posthouse.model.errors import CorruptBatch
from posthouse.model.topics import Topic
from posthouse.protocols.rocketmq.messages import Message, message_of
from posthouse.records.batch import iter_headers
from posthouse.records.raw import RawRecord, iter_raw
from posthouse.records.record import body_of

READ_BYTES: Final = 256 * 1024
"""Of the log at once; more if one batch is larger."""
SCANNED_BYTES: Final = 2 * 1024 * 1024
"""Of records that a filter leaves out, in one request."""
_END: Final = 1 << 62


@dataclass(slots=True, kw_only=True)
class ReadMessage:
    offset: int
    stored_at: int
    message: Message


@dataclass(slots=True)
class ReadMessages:
    following: int
    """The offset to go on from: behind the last message, and behind what was left out."""
    messages: list[ReadMessage] = field(default_factory=list)
    size: int = 0
    """Bytes of the bodies."""
    passed_over: int = 0
    """Messages that were left out, and match one of the other filters."""


async def read_messages(
    broker: Broker,
    topic: Topic,
    partition: int,
    offset: int,
    selected: Filter,
    *,
    most: int,
    most_bytes: int,
    others: Sequence[Filter] = (),
) -> ReadMessages:
    """At most `most`, and no more once they have `most_bytes`. If there are none now, `following` is the end,
    or where the filter gave up. Raises OffsetOutOfRange, UnknownPartition and Unavailable."""
    found = ReadMessages(offset)
    scanned = 0
    while scanned < SCANNED_BYTES:
        part = await broker.read(topic, partition, found.following, READ_BYTES, stable_only=True)
        if not part.data:
            break
        is_aborted = aborted_in(part.aborted)
        view = memoryview(part.data)
        for at, header in iter_headers(view):
            if header.next_offset <= found.following:
                continue
            if header.is_control or not header.count or is_aborted(header):
                found.following = header.next_offset
                continue
            body = body_of(view[at : at + header.length], header)
            for record in iter_raw(body, header, found.following, _END):
                found.following = record.offset + 1
                message = message_of(record)
                if selected.matches(message.properties, message.tag):
                    found.messages.append(
                        ReadMessage(offset=record.offset, stored_at=record.timestamp, message=message)
                    )
                    found.size += len(record.value)
                    if len(found.messages) >= most or found.size >= most_bytes:
                        return found
                elif any(each.matches(message.properties, message.tag) for each in others):
                    found.passed_over += 1
            found.following = header.next_offset
        if found.messages:
            break
        scanned += len(part.data)
    return found


async def read_message(broker: Broker, topic: Topic, partition: int, offset: int) -> Message | None:
    """See `read_record`."""
    record = await read_record(broker, topic, partition, offset)
    return None if record is None else message_of(record)


async def read_record(broker: Broker, topic: Topic, partition: int, offset: int) -> RawRecord | None:
    """The one at this offset; None if consumers have none there. Raises UnknownPartition and Unavailable."""
    bounds = broker.bounds(topic, partition)
    if not bounds.start <= offset < bounds.stable:
        return None
    part = await broker.read(topic, partition, offset, 1, stable_only=True)
    is_aborted = aborted_in(part.aborted)
    view = memoryview(part.data)
    for at, header in iter_headers(view):
        if header.base_offset <= offset < header.next_offset:
            if header.is_control or not header.count or is_aborted(header):
                return None
            body = body_of(view[at : at + header.length], header)
            return next(iter_raw(body, header, offset, offset + 1), None)
    raise CorruptBatch(f"topic {topic.name!r}, partition {partition}: offset {offset} cannot be read")
