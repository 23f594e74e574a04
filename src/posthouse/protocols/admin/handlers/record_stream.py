"""Records of a topic as server-sent events."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated, Final, Literal

from msgspec import Meta

from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.access.quotas import Quota
from posthouse.broker.filters.filter import Filter
from posthouse.broker.filters.sql import compile_sql
from posthouse.broker.filters.tags import compile_tags
from posthouse.model.errors import OffsetOutOfRange
from posthouse.model.topics import Topic
from posthouse.protocols.admin.body_reader import BodyReader
from posthouse.protocols.admin.consumed_records import BytesEncoding
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.endpoint import Endpoint
from posthouse.protocols.admin.handlers.topics import OfTopic
from posthouse.protocols.admin.ingest.json_bodies import PartitionNumber, Timestamp
from posthouse.protocols.admin.payloads import stored
from posthouse.protocols.admin.problems import Problem
from posthouse.protocols.admin.record_stream import RecordStream, WantedOfStream
from posthouse.protocols.admin.request import HttpRequest
from posthouse.protocols.admin.response import EVENT_STREAM, Response
from posthouse.protocols.admin.stream_places import decode_places

_LAST_EVENT_ID: Final = "last-event-id"
_MOST_PARTITIONS: Final = 100
"""Every event names the place in each of them."""


class StreamWanted(OfTopic, frozen=True, kw_only=True, forbid_unknown_fields=True):
    partition: Annotated[PartitionNumber | None, Meta(description="Only this one.")] = None
    begin: Annotated[
        Literal["latest", "earliest"],
        Meta(description="Where to begin: behind the records that there are, or with the first of them."),
    ] = "latest"
    timestamp: Annotated[
        Timestamp | None, Meta(description="Begin with the first record of each partition at or after it.")
    ] = None
    after: Annotated[
        str, Meta(max_length=4000, description="As the header `Last-Event-ID`, for who cannot send it.")
    ] = ""
    key: Annotated[str | None, Meta(description="Only records with this key.")] = None
    key_encoding: Annotated[Literal["text", "base64"], Meta(description="How `key` is written.")] = "text"
    filter: Annotated[
        str,
        Meta(
            max_length=10_000,
            description="Only records whose headers meet this condition of SQL92, as in `n > 5`.",
        ),
    ] = ""
    tags: Annotated[
        str, Meta(max_length=10_000, description="Only RocketMQ messages with one of these tags: `a || b`.")
    ] = ""
    encoding: BytesEncoding = "auto"


def _last_event_id(request: HttpRequest, parameters: StreamWanted) -> str:
    return request.headers.get(_LAST_EVENT_ID, "") or parameters.after


async def _stream(context: CallContext, parameters: StreamWanted, last_event_id: str) -> Response:
    context.require(Operation.READ, Kind.TOPIC, parameters.topic)
    topic = context.broker.topic(parameters.topic)
    wanted = WantedOfStream(
        key=stored(parameters.key, parameters.key_encoding, "the key"),
        filters=_filters(parameters),
        encoding=parameters.encoding,
    )
    places = await _begin(context, topic, parameters)
    if last_event_id:
        known = decode_places(last_event_id, topic)
        await _check(context, topic, known)
        # The topic may have got more partitions meanwhile: of those the client has seen nothing.
        places = {partition: known.get(partition, 0) for partition in places}
    stream = RecordStream(
        context.broker,
        topic,
        places,
        wanted,
        follows_growth=parameters.partition is None,
        may_read=lambda: context.guard.may(Operation.READ, Kind.TOPIC, topic.name),
        charge=lambda size: context.charge(Quota.READ, size),
    )
    context.kept.streams.check(context.owner)
    return Response(body=_events(context, stream), content_type=EVENT_STREAM, is_endless=True)


def _filters(parameters: StreamWanted) -> list[Filter]:
    found = []
    if parameters.filter:
        found.append(compile_sql(parameters.filter))
    if parameters.tags:
        found.append(compile_tags(parameters.tags))
    return found


async def _begin(context: CallContext, topic: Topic, parameters: StreamWanted) -> dict[int, int]:
    if parameters.partition is not None:
        context.broker.partition(topic, parameters.partition)
        partitions = range(parameters.partition, parameters.partition + 1)
    else:
        partitions = range(topic.partitions)
    if len(partitions) > _MOST_PARTITIONS:
        raise Problem(
            400,
            f"a stream may have {_MOST_PARTITIONS} partitions; choose one of {topic.name!r} with partition",
        )
    places = {}
    await context.broker.refresh([topic.partition(each) for each in partitions])
    for each in partitions:
        bounds = context.broker.bounds(topic, each)
        places[each] = bounds.start if parameters.begin == "earliest" else bounds.stable
        if parameters.timestamp is not None:
            found = await context.broker.find_timestamp(topic, each, parameters.timestamp)
            places[each] = bounds.stable if found is None else found.offset
    return places


async def _check(context: CallContext, topic: Topic, places: dict[int, int]) -> None:
    await context.broker.refresh([topic.partition(each) for each in places])
    for partition, offset in places.items():
        end = context.broker.bounds(topic, partition).end
        if offset > end:
            raise OffsetOutOfRange(
                f"partition {partition} ends at {end}, before {offset}: begin the stream anew"
            )


async def _events(context: CallContext, stream: RecordStream) -> AsyncIterator[bytes]:
    try:
        context.kept.streams.check(context.owner)
    except Problem:
        return  # other streams of the owner have begun since the request was answered
    with context.kept.streams.entered(context.owner):
        async with aclosing(stream.events()) as events:
            async for chunk in events:
                yield chunk


RECORD_STREAM: Final = Endpoint(
    method="GET",
    path="/v1/topics/{topic}/records/stream",
    summary="Records as server-sent events, as they are written",
    tag="records",
    description="An event for each record, whose data is the record as JSON, in the order of each partition. "
    "Its id is the place of the stream: a client that comes back with the header `Last-Event-ID` goes on "
    "behind that record, without a gap and without a double; an `EventSource` of a browser does so by "
    "itself. A comment every 15 seconds keeps the connection alive. An event `lost` tells what retention has "
    "removed, `unreadable` what a producer has compressed wrongly, and `end` why the stream is over: the "
    "topic was deleted, or may not be read any more. Records of transactions come when they are committed.",
    handler=_stream,
    parameters=StreamWanted,
    reader=BodyReader(
        read=_last_event_id,
        headers={
            _LAST_EVENT_ID: Annotated[
                str, Meta(max_length=4000, description="Id of the last event that was received.")
            ]
        },
    ),
    result=str,
    content_type=EVENT_STREAM,
    problems=(404, 409, 429),
)
