"""The proof in a record that a half message was committed: a header with its id.

A decision is stored with the message that it makes visible. Damage to the journal can take the decision and
leave the message, which segments have as well. The broker would ask for a decision again, and publish the
message twice. So what recovery has kept without a commit is searched for messages that are not decided.
Only a record that is the message to the byte counts, because a client may forward a record with its headers.

A message that queues get has no proof: the record may be there without the references of the queues, and
the message would be lost to them. It is published again.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import replace
from typing import Final

from posthouse.broker.half_messages.half_message import HalfMessage
from posthouse.broker.queues.routed_records import RoutedRecords
from posthouse.broker.schedule.entry import Scheduled
from posthouse.broker.stored_records import PIECE_BYTES
from posthouse.model.errors import CorruptBatch, RecordTooLarge, Unavailable
from posthouse.model.ids import PartitionId
from posthouse.model.topics import Topic
from posthouse.records.batch import BatchHeader, iter_headers
from posthouse.records.header_section import decode_section, with_first
from posthouse.records.raw import RawRecord, iter_raw
from posthouse.records.record import body_of
from posthouse.storage.contract import Storage
from posthouse.storage.salvaged import decode_offset, salvaged_partition

log = logging.getLogger(__name__)

PROOF: Final = b"posthouse.half-message"
"""The first header of the record: a protocol may want its own to be the last. The value is the id in
digits."""
LARGEST_ID: Final = 2**63 - 1
_MOST_DIGITS: Final = len(str(LARGEST_ID))


def with_proof(headers: bytes, id: int) -> bytes:
    """Raises CorruptBatch for headers that are none."""
    return with_first(headers, PROOF, b"%d" % id)


def published(message: HalfMessage, id: int, routed: RoutedRecords) -> Scheduled:
    """What a commit publishes."""
    content = message.content
    if content.partition is None or _is_for_queues(content, routed):
        return content
    return replace(content, headers=with_proof(content.headers, id))


def _is_for_queues(content: Scheduled, routed: RoutedRecords) -> bool:
    return bool(routed.queues(content.exchange, content.key if content.has_key else None, content.headers))


async def proven_commits(
    storage: Storage,
    salvaged: Mapping[bytes, bytes],
    undecided: Container[int],
    messages: Callable[[Sequence[int]], Awaitable[dict[int, HalfMessage]]],
    routed: RoutedRecords,
) -> tuple[set[int], list[bytes]]:
    """The undecided ones of which a topic has all that their commit writes, and the keys of the entries that
    were searched. `salvaged` are the entries of storage."""
    found: set[int] = set()
    searched: list[bytes] = []
    for key, value in salvaged.items():
        partition = salvaged_partition(key)
        topic = storage.topics.get(partition.topic)
        try:
            if topic is not None and not topic.is_internal:
                async for records in _candidates(storage, partition, decode_offset(value), undecided):
                    known = await messages(list(records))
                    found |= {
                        id
                        for id, record in records.items()
                        if id in known
                        and _is_commit(record, id, known[id].content, topic, partition)
                        and not _is_for_queues(known[id].content, routed)
                    }
        except Unavailable as error:
            log.error("half messages in partition %s may be published twice: %s", partition, error)
        else:
            searched.append(key)
    return found, searched


async def _candidates(
    storage: Storage, partition: PartitionId, first: int, undecided: Container[int]
) -> AsyncIterator[dict[int, RawRecord]]:
    bounds = storage.bounds(partition)
    offset = max(first, bounds.start)
    while offset < bounds.end:
        part = await storage.read(partition, offset, PIECE_BYTES)
        view = memoryview(part.data)
        found: dict[int, RawRecord] = {}
        following = bounds.end
        for at, header in iter_headers(view):
            for record in _records(view[at : at + header.length], header, offset):
                id = _named_by(record)
                if id is not None and id in undecided:
                    found[id] = record
            following = header.next_offset
        yield found
        offset = max(following, offset + 1)


def _records(batch: memoryview, header: BatchHeader, first: int) -> list[RawRecord]:
    """None of a batch that cannot be read: a producer made it so, and it has no half messages."""
    try:
        return list(iter_raw(body_of(batch, header), header, first, header.next_offset))
    except (CorruptBatch, RecordTooLarge):
        return []


def _named_by(record: RawRecord) -> int | None:
    try:
        headers = decode_section(record.headers, 1)
    except CorruptBatch:
        return None  # headers are as their producer wrote them
    if not headers or headers[0][0] != PROOF:
        return None
    digits = headers[0][1] or b""
    return int(digits) if digits.isdigit() and len(digits) <= _MOST_DIGITS else None


def _is_commit(record: RawRecord, id: int, content: Scheduled, topic: Topic, partition: PartitionId) -> bool:
    return (
        content.partition is not None
        and content.exchange == topic.name
        and content.partition % topic.partitions == partition.index
        and record.key == (content.key if content.has_key else None)
        and record.value == content.value
        and record.headers == with_proof(content.headers, id)
    )
