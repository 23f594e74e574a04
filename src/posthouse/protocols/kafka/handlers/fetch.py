"""Fetch: whole batches, as stored, or a wait until there are some.

Every fetch names all its partitions: fetch sessions are declined.

A consumer in another rack (`client.rack`) is told which broker of its rack to read from, without records and
at once (KIP-392). That broker serves it, because it has that rack; see `read_replicas` for consumers that
come back.
"""

import asyncio
from dataclasses import dataclass

from posthouse.broker.access.operations import Kind, Operation
from posthouse.model.errors import OffsetOutOfRange, PosthouseError, UnknownTopic
from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.topics import Topic
from posthouse.protocols.kafka.answer_sizes import ALWAYS, most_bytes
from posthouse.protocols.kafka.codec.generated.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.fetch_tracing import trace_fetch
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.leader_epochs import check_leader_epoch
from posthouse.protocols.kafka.nodes import NO_NODE_ID
from posthouse.protocols.kafka.permissions import forbidden
from posthouse.protocols.kafka.unknown_topics import look_for_topic
from posthouse.records.batch import Readable, iter_headers, parse_header
from posthouse.storage.bounds import Slice

_FIRST_WITH_TOPIC_ID = 13
_READ_COMMITTED = 1


@dataclass(slots=True)
class _Reading:
    """One pass over the partitions. `left` and `at_least_one` shrink as partitions use the limits."""

    request: FetchRequest
    left: int
    at_least_one: bool
    """Whether the first batch may exceed the limit. False while memory is short."""
    bytes_read: int = 0
    failed: bool = False
    has_sent_on: bool = False
    """A partition is to be read from another broker."""
    has_looked: bool = False
    """Unknown topics were looked for."""
    look_failure: PosthouseError | None = None
    """Why that failed: then no topic may be called unknown."""
    has_refreshed: bool = False
    """The ends of the partitions were refreshed."""
    refresh_failure: PosthouseError | None = None
    """Why that failed: then no offset above a known end may be called out of range."""
    found: list[tuple[str, Readable]] | None = None
    """What was read, by the name of its topic. It is counted when it is sent: a pass may be made again."""


async def handle(context: Context, request: FetchRequest) -> FetchResponse:
    if request.session_epoch > 0:
        context.count_error()
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + request.max_wait_ms / 1000
    before = -1
    while True:
        most = min(request.max_bytes, most_bytes(context))
        reading = _Reading(request, left=most, at_least_one=context.room > 0)
        ends: list[tuple[PartitionId, int]] = []
        topics = [await _read_topic(context, request, topic, reading, ends) for topic in request.topics]
        missing = request.min_bytes - reading.bytes_read
        seconds = deadline - loop.time()
        is_over = missing <= 0 or seconds <= 0 or reading.failed or reading.has_sent_on or not ends
        # A wait without new bytes ended by its deadline, or because the broker is stopping.
        if is_over or reading.bytes_read == before:
            if reading.failed:
                context.count_error()
            # Another broker may write to those that were at their end, while others always have records.
            context.broker.watch(partition for partition, _ in ends)
            for name, batches in reading.found or ():
                context.broker.traffic.read(name, batches)
            if context.broker.tracer is not None:
                trace_fetch(
                    context.broker.tracer, context, request, topics, request.max_wait_ms / 1000 - seconds
                )
            return FetchResponse(responses=topics)
        before = reading.bytes_read
        await context.broker.wait_for_records(
            ends, missing, seconds, stable_only=request.isolation_level == _READ_COMMITTED
        )


async def _read_topic(
    context: Context,
    request: FetchRequest,
    wanted: FetchTopic,
    reading: _Reading,
    ends: list[tuple[PartitionId, int]],
) -> FetchableTopicResponse:
    by_id = context.version >= _FIRST_WITH_TOPIC_ID
    stable_only = request.isolation_level == _READ_COMMITTED
    answers = []
    for partition in wanted.partitions:
        answer = PartitionData(
            partition_index=partition.partition,
            high_watermark=-1,
            aborted_transactions=[] if stable_only else None,
            records=b"",
        )
        answers.append(answer)
        try:
            try:
                topic = _topic(context, wanted, by_id)
            except UnknownTopic:
                await _look_once(context, reading, wanted, by_id)
                topic = _topic(context, wanted, by_id)
            check_leader_epoch(partition.current_leader_epoch)
            await _read_partition(context, topic, partition, reading, answer, stable_only=stable_only)
            if answer.preferred_read_replica == NO_NODE_ID:
                end = answer.last_stable_offset if stable_only else answer.high_watermark
                ends.append((topic.partition(partition.partition), end))
        except (PosthouseError, Refused) as error:
            answer.error_code = code_of(error, by_id=by_id)
            reading.failed = True
    return FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id, partitions=answers)


async def _look_once(context: Context, reading: _Reading, wanted: FetchTopic, by_id: bool) -> None:
    """Raises Unavailable, for each topic that is not known."""
    if reading.look_failure is not None:
        raise reading.look_failure
    if reading.has_looked:
        return
    try:
        await look_for_topic(context, wanted.topic, TopicId(wanted.topic_id) if by_id else None)
    except PosthouseError as error:
        reading.look_failure = error
        raise
    reading.has_looked = True


def _topic(context: Context, wanted: FetchTopic, by_id: bool) -> Topic:
    if by_id:
        topic = context.broker.topic_by_id(TopicId(wanted.topic_id))
        _check_readable(context, topic.name)
        return topic
    _check_readable(context, wanted.topic)
    return context.broker.topic(wanted.topic)


def _check_readable(context: Context, name: str) -> None:
    if not context.guard.allows(Operation.READ, Kind.TOPIC, name):
        raise forbidden(Operation.READ, Kind.TOPIC)


async def _read_partition(
    context: Context,
    topic: Topic,
    wanted: FetchPartition,
    reading: _Reading,
    answer: PartitionData,
    *,
    stable_only: bool,
) -> None:
    offset = wanted.fetch_offset
    bounds = context.broker.bounds(topic, wanted.partition)
    if offset > bounds.end:  # another broker may have written it
        await _refresh_once(context, reading)
        bounds = context.broker.bounds(topic, wanted.partition)
    if not bounds.start <= offset <= bounds.end:
        raise OffsetOutOfRange(f"offset {offset} is outside {bounds.start} to {bounds.end}")
    room = min(wanted.partition_max_bytes, reading.left)
    nearer = _nearer(context, topic, wanted.partition, reading.request.rack_id)
    if nearer is not None:
        answer.preferred_read_replica = nearer
        reading.has_sent_on = True
    elif offset < bounds.end and (room > 0 or reading.at_least_one):
        if room > ALWAYS:  # other connections may read while this one waits for the device
            context.hold(reading.bytes_read + room)
        found = await context.broker.read(
            topic,
            wanted.partition,
            offset,
            max(room, 0),
            at_least_one=reading.at_least_one,
            stable_only=stable_only,
        )
        bounds = found.bounds
        size = len(found.data)
        if size:
            answer.records = found.data
            if reading.found is None:
                reading.found = []
            reading.found.append((topic.name, found.data))
            reading.bytes_read += size
            reading.left -= size
            reading.at_least_one = False
            context.hold(reading.bytes_read)
            if stable_only:
                answer.aborted_transactions = _aborted(found)
    answer.high_watermark = bounds.end
    answer.last_stable_offset = bounds.stable
    answer.log_start_offset = bounds.start


def _nearer(context: Context, topic: Topic, partition: int, rack: str) -> int | None:
    """The node that the consumer is told to read from; None if it is served here."""
    found = context.node.nearer(topic, partition, rack)
    if found is None:
        return None
    told = context.origin.connection.read_replicas
    now = asyncio.get_running_loop().time()
    return found if told.tell(topic.partition(partition), found, now) else None


async def _refresh_once(context: Context, reading: _Reading) -> None:
    """Raises Unavailable, for each partition that needs it."""
    if reading.refresh_failure is not None:
        raise reading.refresh_failure
    if reading.has_refreshed:
        return
    try:
        await _refresh(context, reading.request)
    except PosthouseError as error:
        reading.refresh_failure = error
        raise
    reading.has_refreshed = True


async def _refresh(context: Context, request: FetchRequest) -> None:
    """All partitions together: where one is behind, others are, too."""
    by_id = context.version >= _FIRST_WITH_TOPIC_ID
    topics = context.broker.topics
    found: list[PartitionId] = []
    for wanted in request.topics:
        topic = topics.find_by_id(TopicId(wanted.topic_id)) if by_id else topics.find(wanted.topic)
        if topic is not None:
            indexes = (each.partition for each in wanted.partitions)
            found += [topic.partition(index) for index in indexes if 0 <= index < topic.partitions]
    await context.broker.refresh(found)


def _aborted(found: Slice) -> list[AbortedTransaction]:
    """The aborted transactions with records in the data, and no others: for an earlier one the client would
    wait for a marker that does not follow, and drop good records."""
    if not found.aborted:
        return []
    start = parse_header(found.data).base_offset
    end = max(header.next_offset for _, header in iter_headers(found.data))
    aborted = [each for each in found.aborted if each.last_offset >= start and each.first_offset < end]
    return [
        AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
        for each in sorted(aborted, key=lambda each: each.first_offset)
    ]


def _refuse(context: Context, request: FetchRequest, code: ErrorCode, message: str) -> FetchResponse:
    return FetchResponse(error_code=code)


HANDLER = Handler(key=1, handle=handle, refuse=_refuse, counts_errors=True)
