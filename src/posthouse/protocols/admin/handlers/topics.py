"""Topics: listed, described, created, changed and deleted."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from posthouse.broker.access.operations import Kind, Operation
from posthouse.broker.topics import NewTopic
from posthouse.model.errors import PosthouseError, UnknownPartition
from posthouse.model.topics import Topic
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.endpoint import Endpoint, NoBody
from posthouse.protocols.admin.paging import Page, Paging, page_of_names
from posthouse.protocols.admin.problems import refused
from posthouse.protocols.admin.turns import in_turns

_PARTITIONS = 1000
"""Of one answer."""

TopicName = Annotated[str, Meta(min_length=1, max_length=249, description="Name of the topic.")]


class OfTopic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    topic: TopicName


class TopicWanted(OfTopic, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=_PARTITIONS, description="Most partitions of the answer.")] = (
        _PARTITIONS
    )
    after: Annotated[
        int, Meta(ge=0, le=100_000, description="`next` of the answer before: the first partition to show.")
    ] = 0


class TopicSummary(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    id: str
    partitions: int
    records: Annotated[int, Meta(description="Offsets between start and end, of all partitions.")]
    bytes: Annotated[int, Meta(description="Size of the log on disk.")]


class PartitionSummary(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    start: Annotated[int, Meta(description="First offset.")]
    end: Annotated[int, Meta(description="Offset of the next record.")]
    stable: Annotated[int, Meta(description="Below it every transaction is decided (last stable offset).")]
    bytes: int


class TopicDescription(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    id: str
    partitions: Annotated[list[PartitionSummary], Meta(description="Those of this answer, by number.")]
    partitions_total: int
    next: Annotated[int | None, Meta(description="`after` for the other partitions; null at the end.")]
    settings: Annotated[dict[str, str], Meta(description="What was set on the topic itself.")]


class NewTopicBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: TopicName
    partitions: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    settings: dict[str, str] = {}


async def summary(context: CallContext, topic: Topic) -> TopicSummary | None:
    """In turns: a topic may have 100,000 partitions. None if it is deleted meanwhile."""
    records = size = 0
    try:
        async for index in in_turns(range(topic.partitions)):
            bounds = context.broker.bounds(topic, index)
            records += bounds.end - bounds.start
            size += context.broker.size(topic, index)
    except UnknownPartition:
        return None
    return TopicSummary(
        name=topic.name, id=topic.id.hex(), partitions=topic.partitions, records=records, bytes=size
    )


def view(context: CallContext, topic: Topic, *, first: int = 0, limit: int = _PARTITIONS) -> TopicDescription:
    shown = range(first, min(first + limit, topic.partitions))
    partitions = []
    for index in shown:
        bounds = context.broker.bounds(topic, index)
        size = context.broker.size(topic, index)
        partitions.append(
            PartitionSummary(
                partition=index, start=bounds.start, end=bounds.end, stable=bounds.stable, bytes=size
            )
        )
    return TopicDescription(
        name=topic.name,
        id=topic.id.hex(),
        partitions=partitions,
        partitions_total=topic.partitions,
        next=first + limit if first + limit < topic.partitions else None,
        settings=dict(topic.overrides),
    )


async def _list(context: CallContext, paging: Paging, body: NoBody) -> Page[TopicSummary]:
    names = await page_of_names(
        [topic.name for topic in context.broker.topics],
        paging,
        sees=lambda name: context.guard.sees(Kind.TOPIC, name),
    )
    items = []
    async for name in in_turns(names.items, steps=1):
        topic = context.broker.topics.find(name)
        found = None if topic is None else await summary(context, topic)
        if found is not None:
            items.append(found)
    return Page(items=items, total=names.total, next=names.next)


async def _describe(context: CallContext, parameters: TopicWanted, body: NoBody) -> TopicDescription:
    context.require(Operation.DESCRIBE, Kind.TOPIC, parameters.topic)
    topic = context.broker.topic(parameters.topic)
    return view(context, topic, first=parameters.after, limit=parameters.limit)


async def _create(context: CallContext, parameters: msgspec.Struct, body: NewTopicBody) -> TopicDescription:
    if not context.guard.allows_here_or_everywhere(Operation.CREATE, Kind.TOPIC, body.name):
        raise refused(Operation.CREATE, Kind.TOPIC, body.name)
    new = NewTopic(name=body.name, partitions=body.partitions, overrides=body.settings)
    [created] = await context.broker.create_topics([new])
    if isinstance(created, PosthouseError):
        raise created
    return view(context, created)


async def _delete(context: CallContext, parameters: OfTopic, body: NoBody) -> None:
    context.require(Operation.DELETE, Kind.TOPIC, parameters.topic)
    await context.broker.delete_topics([await context.broker.find_topic(parameters.topic)])


TOPICS: Final = (
    Endpoint(
        method="GET",
        path="/v1/topics",
        summary="List topics",
        tag="topics",
        handler=_list,
        parameters=Paging,
        result=Page[TopicSummary],
    ),
    Endpoint(
        method="POST",
        path="/v1/topics",
        summary="Create a topic",
        tag="topics",
        handler=_create,
        body=NewTopicBody,
        result=TopicDescription,
        status=201,
        problems=(409,),
    ),
    Endpoint(
        method="GET",
        path="/v1/topics/{topic}",
        summary="Describe a topic",
        tag="topics",
        handler=_describe,
        parameters=TopicWanted,
        result=TopicDescription,
        problems=(404,),
    ),
    Endpoint(
        method="DELETE",
        path="/v1/topics/{topic}",
        summary="Delete a topic with its records",
        tag="topics",
        handler=_delete,
        parameters=OfTopic,
        problems=(404,),
    ),
)
