"""What fills the disk: the journal, topics, and the reference logs of queues, the largest first."""

import heapq
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from posthouse.broker.access.operations import Operation
from posthouse.model.errors import UnknownPartition
from posthouse.model.ids import TopicId
from posthouse.model.topics import Topic
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.endpoint import Endpoint, NoBody
from posthouse.protocols.admin.turns import in_turns


class DiskWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=1000, description="Most logs of the answer.")] = 100
    after: Annotated[
        int, Meta(ge=0, le=(1 << 31) - 1, description="`next` of the answer before: logs to skip.")
    ] = 0


class StoredLog(msgspec.Struct, frozen=True, kw_only=True):
    kind: Annotated[
        Literal["topic", "queue", "internal"],
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
    queues = await _queues(context)
    logs = [
        _log(topic, queues.get(topic.id), await _size(context, topic))
        async for topic in in_turns(context.broker.stored_topics())
    ]
    wanted = parameters.after + parameters.limit
    largest = heapq.nsmallest(wanted, logs, key=lambda each: (-each.bytes, each.kind, each.name))
    return DiskReport(
        free=condition.free_bytes,
        total=condition.total_bytes,
        journal=condition.journal_bytes,
        logs_bytes=sum(each.bytes for each in logs),
        logs_total=len(logs),
        logs=largest[parameters.after :],
        next=wanted if wanted < len(logs) else None,
    )


async def _queues(context: CallContext) -> dict[TopicId, tuple[str, str]]:
    """Namespace and name by the topic of the references."""
    found = {}
    for namespace in list(context.broker.namespaces):
        async for queue in in_turns(list(namespace.queues.values())):
            found[queue.log.id] = (namespace.name, queue.name)
    return found


def _log(topic: Topic, queue: tuple[str, str] | None, size: int) -> StoredLog:
    if queue is not None:
        namespace, name = queue
        return StoredLog(kind="queue", name=name, namespace=namespace, bytes=size)
    kind: Literal["internal", "topic"] = "internal" if topic.is_internal else "topic"
    return StoredLog(kind=kind, name=topic.name, namespace=None, bytes=size)


async def _size(context: CallContext, topic: Topic) -> int:
    size = 0
    try:
        async for index in in_turns(range(topic.partitions)):
            size += context.broker.size(topic, index)
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
