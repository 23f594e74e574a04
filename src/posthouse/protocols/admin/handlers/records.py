"""Records of a topic, looked at."""

from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.access.quotas import Quota
from posthouse.broker.key_index.names import NameQuery
from posthouse.model.errors import OffsetOutOfRange
from posthouse.model.topics import Topic
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.decoding.schemas import SCHEMAS_TOPIC
from posthouse.protocols.admin.endpoint import Endpoint, NoBody
from posthouse.protocols.admin.handlers.topics import OfTopic
from posthouse.protocols.admin.ingest.json_bodies import PartitionNumber, Timestamp
from posthouse.protocols.admin.payloads import KnownSchemas, stored
from posthouse.protocols.admin.problems import Problem
from posthouse.protocols.admin.record_reading import RecordPosition, RecordScan, WantedRecords, on_a_thread
from posthouse.protocols.admin.record_views import RecordView
from posthouse.records.record_names import Name, NameKind

_INT64_MAX = (1 << 63) - 1
_INT64_MIN = -(1 << 63)
_MOST_RECORDS = 1000
_MOST_BYTES = 4 * 1024 * 1024
_MOST_WAIT_MS = 30_000

Offset = Annotated[int, Meta(ge=0, le=_INT64_MAX)]


class RecordsWanted(OfTopic, frozen=True, kw_only=True, forbid_unknown_fields=True):
    partition: PartitionNumber | None = None
    offset: Annotated[Offset | None, Meta(description="First offset; only together with `partition`.")] = None
    timestamp: Annotated[
        Timestamp | None, Meta(description="Begin with the first record of each partition at or after it.")
    ] = None
    key: Annotated[
        str | None,
        Meta(description="Only records with this key, or with it among the keys of a RocketMQ message."),
    ] = None
    key_encoding: Annotated[Literal["text", "base64"], Meta(description="How `key` is written.")] = "text"
    message_id: Annotated[
        str | None,
        Meta(
            description="Only records with this message id: `UNIQ_KEY` of RocketMQ, `message_id` of AMQP. "
            "Not together with `key`."
        ),
    ] = None
    until: Annotated[
        Timestamp | None,
        Meta(
            description="With `key` or `message_id`: only records with this timestamp or an earlier one, and "
            "with `timestamp` or a later one."
        ),
    ] = None
    limit: Annotated[int, Meta(ge=1, le=_MOST_RECORDS, description="Most records of the answer.")] = 100
    max_bytes: Annotated[
        int,
        Meta(
            ge=1,
            le=_MOST_BYTES,
            description="Bytes of batches to read, decompressed; `next` goes on from there.",
        ),
    ] = 1024 * 1024
    value_bytes: Annotated[
        int, Meta(ge=0, le=1024 * 1024, description="Longer keys, values and headers are cut.")
    ] = 16 * 1024
    isolation: Annotated[
        Literal["committed", "uncommitted"],
        Meta(description="`uncommitted` shows records of open and aborted transactions, too."),
    ] = "committed"
    wait_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=_MOST_WAIT_MS,
            description="With `offset`: how long to wait for records if there are none yet.",
        ),
    ] = 0
    after: Annotated[
        str, Meta(pattern=r"^(\d{1,9}-\d{1,18})?$", description="`next` of the answer before.")
    ] = ""


class Records(msgspec.Struct, frozen=True, kw_only=True):
    records: list[RecordView]
    next: Annotated[str | None, Meta(description="`after` of the next request; null at the end.")]
    complete: Annotated[bool, Meta(description="The log was read to its end, within the bounds asked for.")]
    scanned_bytes: Annotated[int, Meta(description="Bytes of the batches that were read, decompressed.")]
    unreadable_batches: Annotated[int, Meta(description="Batches that their producer compressed wrongly.")]


async def _read(context: CallContext, parameters: RecordsWanted, body: NoBody) -> Records:
    context.require(Operation.READ, Kind.TOPIC, parameters.topic)
    topic = context.broker.topic(parameters.topic)
    after = RecordPosition.parse(parameters.after) if parameters.after else None
    _check(context, topic, parameters)
    query = _query(parameters)
    wanted = WantedRecords(
        query=query,
        limit=parameters.limit,
        max_bytes=parameters.max_bytes,
        value_bytes=parameters.value_bytes,
        stable_only=parameters.isolation == "committed",
        schemas=await _schemas(context),
    )
    if parameters.wait_ms:
        await _wait(context, topic, parameters)
    scan = RecordScan(context.broker, topic, wanted)
    partitions = _partitions(topic, parameters.partition, after)
    if parameters.offset is None and parameters.timestamp is None and query is None and after is None:
        found = await scan.newest(partitions)
        is_complete, position = found.next is None, None
    else:
        found = await scan.forward(
            partitions, lambda each: _start(context, topic, each, parameters, query), after
        )
        is_complete, position = found.next is None, found.next
    await context.charge(Quota.READ, found.shown_bytes)
    return Records(
        records=found.records,
        next=None if position is None else str(position),
        complete=is_complete,
        scanned_bytes=found.scanned_bytes,
        unreadable_batches=found.unreadable_batches,
    )


async def _wait(context: CallContext, topic: Topic, parameters: RecordsWanted) -> None:
    """Until there is something at the offset."""
    if parameters.offset is None or parameters.partition is None:
        raise Problem(400, "wait_ms belongs to an offset: give partition and offset, too")
    stable_only = parameters.isolation == "committed"
    bounds = context.broker.bounds(topic, parameters.partition)
    end = bounds.stable if stable_only else bounds.end
    if parameters.offset >= end:
        await context.broker.wait_for_records(
            [(topic.partition(parameters.partition), end)],
            1,
            parameters.wait_ms / 1000,
            stable_only=stable_only,
        )


async def _schemas(context: CallContext) -> KnownSchemas:
    """Those that a registry keeps in this broker, for clients that may read them."""
    topic = context.broker.topics.find(SCHEMAS_TOPIC)
    if topic is None or not context.guard.may(Operation.READ, Kind.TOPIC, SCHEMAS_TOPIC):
        return {}
    await context.kept.schemas.refresh(context.broker, topic, on_a_thread)
    return context.kept.schemas


def _check(context: CallContext, topic: Topic, parameters: RecordsWanted) -> None:
    if parameters.partition is not None:
        context.broker.partition(topic, parameters.partition)
    if parameters.key is not None and parameters.message_id is not None:
        raise Problem(400, "give a key or a message id, not both")
    if parameters.until is not None and parameters.key is None and parameters.message_id is None:
        raise Problem(400, "until belongs to a search: give a key or a message id, too")
    if parameters.offset is None:
        return
    if parameters.partition is None:
        raise Problem(400, "an offset belongs to a partition: give the partition, too")
    if parameters.timestamp is not None:
        raise Problem(400, "give an offset or a timestamp, not both")
    bounds = context.broker.bounds(topic, parameters.partition)
    if not bounds.start <= parameters.offset <= bounds.end:
        raise OffsetOutOfRange(
            f"offset {parameters.offset} is outside the log, which has {bounds.start} to {bounds.end}"
        )


def _partitions(topic: Topic, partition: int | None, after: RecordPosition | None) -> Sequence[int]:
    if partition is not None:
        return (partition,)
    return range(0 if after is None else after.partition, topic.partitions)


def _query(parameters: RecordsWanted) -> NameQuery | None:
    """What `key`, `message_id` and the times ask for; None if the call is about all records."""
    if parameters.key is not None:
        value = stored(parameters.key, parameters.key_encoding, "the key")
        name = Name(NameKind.KEY, value or b"")
    elif parameters.message_id is not None:
        name = Name(NameKind.MESSAGE_ID, parameters.message_id.encode())
    else:
        return None
    since = _INT64_MIN if parameters.timestamp is None else parameters.timestamp
    return NameQuery(name, since, _INT64_MAX if parameters.until is None else parameters.until)


async def _start(
    context: CallContext, topic: Topic, partition: int, parameters: RecordsWanted, query: NameQuery | None
) -> int | None:
    if parameters.offset is not None:
        return parameters.offset
    if parameters.timestamp is not None and query is None:
        found = await context.broker.find_timestamp(topic, partition, parameters.timestamp)
        return None if found is None else found.offset
    return context.broker.bounds(topic, partition).start


RECORDS: Final = (
    Endpoint(
        method="GET",
        path="/v1/topics/{topic}/records",
        summary="Look at records: from an offset or a time on, those of a key or an id, or the newest",
        tag="records",
        description="Without `offset`, `timestamp`, `key`, `message_id` and `after`: the newest records of "
        "the topic, or of one partition, the newest first. Otherwise records in the order of partitions and "
        "offsets, from the offset or the time on, or from the beginning for a `key` or a `message_id`. In "
        "topics with `index.keys`, only batches are read then that may have such a record. The answer "
        "ends after `limit` records or `max_bytes` of batches; `next` goes on from there, with "
        "the other parameters unchanged. With `wait_ms`, a request for an offset that has no record "
        "yet waits for one. Markers of transactions are never shown. Values are "
        "decoded as text, JSON or MessagePack where they are that. Of payloads with the id of a schema, "
        "Avro is decoded if the schema registry keeps its schemas in this broker (topic `_schemas`), and "
        "Protocol Buffers are shown by the numbers of their fields.",
        handler=_read,
        parameters=RecordsWanted,
        result=Records,
        problems=(404,),
    ),
)
