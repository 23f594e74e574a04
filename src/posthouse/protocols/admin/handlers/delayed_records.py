"""Records that are produced at a time."""

import asyncio
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.access.quotas import Quota
from posthouse.model.errors import PosthouseError
from posthouse.model.scopes import DEFAULT_NAMESPACE, scope_of_namespace
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.endpoint import Endpoint
from posthouse.protocols.admin.handlers.topics import OfTopic
from posthouse.protocols.admin.ingest.json_bodies import NewHeader, PartitionNumber, Timestamp
from posthouse.protocols.admin.payloads import SentEncoding, stored
from posthouse.protocols.admin.problems import Problem
from posthouse.records.header_section import encode_section
from posthouse.records.partitioner import partition_of

_MOST_BODY: Final = 2 * 1024 * 1024


class DelayedRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    deliver_at: Annotated[Timestamp, Meta(description="When it is produced: milliseconds since 1970.")]
    value: Any
    encoding: SentEncoding = "text"
    key: Any = None
    key_encoding: SentEncoding = "text"
    headers: Annotated[list[NewHeader], Meta(max_length=1000)] = []
    partition: Annotated[
        PartitionNumber | None, Meta(description="Chosen by the key if not given, as Kafka's clients do.")
    ] = None


class Delayed(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    deliver_at: int


async def _delay(context: CallContext, parameters: OfTopic, body: DelayedRecord) -> Delayed:
    context.require(Operation.WRITE, Kind.TOPIC, parameters.topic)
    topic = context.broker.topic(parameters.topic)
    key = stored(body.key, body.key_encoding, "the key")
    value = stored(body.value, body.encoding, "the value")
    if value is None:
        raise Problem(400, "a delayed record needs a value; a tombstone cannot be delayed")
    headers = encode_section(
        [
            (each.name.encode(), stored(each.value, each.encoding, f"header {each.name!r}"))
            for each in body.headers
        ]
    )
    if body.partition is not None:
        partition = body.partition
    elif key is not None:
        partition = partition_of(key, topic.partitions)
    else:
        partition = context.broker.now_ms() % topic.partitions
    written: asyncio.Future[PosthouseError | None] = asyncio.get_running_loop().create_future()

    def told(error: PosthouseError | None) -> None:
        if not written.done():
            written.set_result(error)

    context.broker.delayed_records.add(topic, partition, key, value, headers, body.deliver_at, told)
    error = await written
    if error is not None:
        raise error
    context.guard.note("produce", f"{Kind.TOPIC}:{topic.name}", "1 record, delayed")
    await context.charge(Quota.WRITTEN, len(value) + len(headers) + len(key or b""))
    return Delayed(partition=partition, deliver_at=body.deliver_at)


DELAYED_RECORDS: Final = Endpoint(
    method="POST",
    path="/v1/topics/{topic}/delayed-records",
    summary="Produce a record at a time",
    tag="records",
    description="When this is answered, the record is on disk, and nobody sees it. It is produced once, not "
    "before `deliver_at`, and as soon as possible if that is in the past.",
    scope=lambda parameters: scope_of_namespace(DEFAULT_NAMESPACE),
    handler=_delay,
    parameters=OfTopic,
    body=DelayedRecord,
    most_body=_MOST_BODY,
    result=Delayed,
    problems=(404, 413, 507),
)
