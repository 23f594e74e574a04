"""Partitions of a topic: more of them, and their beginning forgotten."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from posthouse.broker.access.operations import Kind, Operation
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.endpoint import Endpoint
from posthouse.protocols.admin.handlers.topics import OfTopic, TopicDescription, view
from posthouse.protocols.admin.problems import Problem

_AT_ONCE = 200
"""Partitions that are trimmed together: commits of one turn share a sync."""
_INT64_MAX = (1 << 63) - 1


class PartitionsBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    partitions: Annotated[int, Meta(ge=1, le=100_000, description="The new number; it can only grow.")]


class TrimBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    partition: Annotated[
        Annotated[int, Meta(ge=0, le=100_000)] | None, Meta(description="null: all of them.")
    ] = None
    before: Annotated[
        Annotated[int, Meta(ge=0, le=_INT64_MAX)] | None,
        Meta(description="First offset to keep; null forgets everything. Only together with `partition`."),
    ] = None


class PartitionStart(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    start: Annotated[int, Meta(description="First offset that is left.")]


class Trimmed(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partitions: list[PartitionStart]


async def _grow(context: CallContext, parameters: OfTopic, body: PartitionsBody) -> TopicDescription:
    context.require(Operation.ALTER, Kind.TOPIC, parameters.topic)
    return view(context, await context.broker.create_partitions(parameters.topic, body.partitions))


async def _trim(context: CallContext, parameters: OfTopic, body: TrimBody) -> Trimmed:
    context.require(Operation.DELETE, Kind.TOPIC, parameters.topic)
    topic = context.broker.topic(parameters.topic)
    if body.partition is None and body.before is not None:
        raise Problem(400, "an offset belongs to a partition: give the partition, too")
    if topic.config.is_compacted and not topic.config.is_deleted:
        raise Problem(
            409,
            f"topic {topic.name!r} is compacted and keeps the latest record of each key; with the "
            "cleanup.policy 'compact,delete' it can be trimmed",
        )
    # The permission alone would read as if the topic had been deleted.
    which = "all partitions" if body.partition is None else f"partition {body.partition}"
    end = "its end" if body.before is None else body.before
    context.guard.note("delete-records", f"{Kind.TOPIC}:{topic.name}", f"of {which} before {end}")
    wanted: Sequence[int] = range(topic.partitions) if body.partition is None else (body.partition,)
    starts: list[PartitionStart] = []
    for first in range(0, len(wanted), _AT_ONCE):
        some = wanted[first : first + _AT_ONCE]
        trimmed = await asyncio.gather(
            *(context.broker.delete_records(topic, each, body.before) for each in some)
        )
        starts += [
            PartitionStart(partition=each, start=start) for each, start in zip(some, trimmed, strict=True)
        ]
    return Trimmed(topic=topic.name, partitions=starts)


PARTITIONS: Final = (
    Endpoint(
        method="POST",
        path="/v1/topics/{topic}/partitions",
        summary="Add partitions to a topic",
        tag="topics",
        handler=_grow,
        parameters=OfTopic,
        body=PartitionsBody,
        result=TopicDescription,
        problems=(404, 507),
    ),
    Endpoint(
        method="POST",
        path="/v1/topics/{topic}/trim",
        summary="Delete the first records of one partition or all",
        tag="topics",
        writes_to_topic=True,
        handler=_trim,
        parameters=OfTopic,
        body=TrimBody,
        result=Trimmed,
        problems=(404, 409),
    ),
)
