"""What fills the disk: the journal, topics, and the reference logs of queues, the largest first."""

import heapq
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from posthouse.broker.access.operations import Operation
from posthouse.broker.queues.internal_topics import queue_of
from posthouse.broker.queues.log_queue import LogQueue
from posthouse.model.errors import UnknownPartition
from posthouse.model.ids import TopicId
from posthouse.model.scopes import NAMESPACES
from posthouse.model.topics import Topic
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.endpoint import Endpoint, NoBody
from posthouse.protocols.admin.other_brokers import OtherBroker
from posthouse.protocols.admin.turns import Turns, in_turns

Kind: TypeAlias = Literal["topic", "queue", "internal"]

_MOST: Final = 1000
_AT_ONCE: Final = 100
"""Partitions between two looks at the clock."""
_Log: TypeAlias = tuple[int, Kind, str, str | None]
"""The negative size, so that the largest sort first; kind, name and namespace. Tuples, because there may be
very many, and a page shows few of them."""


class DiskWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=_MOST, description="Most logs of the answer.")] = 100
    after: Annotated[
        int, Meta(ge=0, le=(1 << 31) - 1, description="`next` of the answer before: logs to skip.")
    ] = 0


class StoredLog(msgspec.Struct, frozen=True, kw_only=True):
    kind: Annotated[
        Kind,
        Meta(description="`queue`: the references of a queue; its messages are in topics."),
    ]
    name: str
    namespace: Annotated[str | None, Meta(description="Of a queue.")]
    bytes: int


class DiskReport(msgspec.Struct, frozen=True, kw_only=True):
    free: Annotated[int | None, Meta(description="null if everything is kept in memory.")]
    total: int | None
    journal: int | None
    logs_bytes: Annotated[int, Meta(description="All logs together.")]
    logs_total: int
    logs: Annotated[list[StoredLog], Meta(description="The largest first.")]
    next: Annotated[int | None, Meta(description="`after` of the next page; null on the last one.")]


async def _describe(context: CallContext, parameters: DiskWanted, body: NoBody) -> DiskReport:
    context.require_cluster(Operation.DESCRIBE)
    condition = await context.broker.storage_condition()
    parts = context.parts(NAMESPACES, "namespaces")
    logs = await _logs(context)
    size, total = -sum(less for less, _, _, _ in logs), len(logs)
    wanted = parameters.after + parameters.limit
    for other in parts.others:
        report = await _of_queues(other, wanted)
        logs += [(-each.bytes, each.kind, each.name, each.namespace) for each in report.logs]
        size += report.logs_bytes
        total += report.logs_total
    parts.check()
    largest = heapq.nsmallest(wanted, logs)
    return DiskReport(
        free=condition.free_bytes,
        total=condition.total_bytes,
        journal=condition.journal_bytes,
        logs_bytes=size,
        logs_total=total,
        logs=[
            StoredLog(kind=kind, name=name, namespace=namespace, bytes=-less)
            for less, kind, name, namespace in largest[parameters.after :]
        ],
        next=wanted if wanted < total else None,
    )


async def _of_queues(other: OtherBroker, wanted: int) -> DiskReport:
    """With the `wanted` largest logs of the queues that the other broker serves."""
    logs: list[StoredLog] = []
    after: int | None = 0
    while after is not None and len(logs) < wanted:
        body = await other.read(("v1", "disk"), {"limit": str(_MOST), "after": str(after)})
        report = msgspec.json.decode(body, type=DiskReport)
        logs += report.logs
        after = report.next
    return msgspec.structs.replace(report, logs=logs)


def _is_shown(context: CallContext, topic: Topic) -> bool:
    """Of a topic that has the references of no queue that this broker serves. All brokers know all topics:
    the one that asks the others shows them. References are shown by the broker that serves their queue."""
    if context.caller.is_relayed:
        return False
    return context.other_brokers is None or queue_of(topic) is None


async def _logs(context: CallContext) -> list[_Log]:
    queues = await _queues(context)
    found: list[_Log] = []
    turns = Turns()
    for topic in context.broker.stored_topics():
        queue = queues.get(topic.id)
        if queue is None and not _is_shown(context, topic):
            continue
        size = await _size(context, topic, turns)
        if queue is not None:
            found.append((-size, "queue", queue.name, queue.namespace))
        else:
            found.append((-size, "internal" if topic.is_internal else "topic", topic.name, None))
    return found


async def _queues(context: CallContext) -> dict[TopicId, LogQueue]:
    """By the topic of their references."""
    found = {}
    for namespace in list(context.broker.namespaces):
        async for queue in in_turns(list(namespace.queues.values())):
            found[queue.log.id] = queue
    return found


async def _size(context: CallContext, topic: Topic, turns: Turns) -> int:
    size, of_partition = 0, context.broker.size
    try:
        for first in range(0, topic.partitions, _AT_ONCE):
            for index in range(first, min(first + _AT_ONCE, topic.partitions)):
                size += of_partition(topic, index)
            await turns.next()
    except UnknownPartition:
        return 0  # deleted meanwhile
    return size


DISK: Final = Endpoint(
    method="GET",
    path="/v1/disk",
    summary="What fills the disk, the largest logs first",
    tag="broker",
    handler=_describe,
    parameters=DiskWanted,
    result=DiskReport,
)
