"""What the broker knows of the archive and of pipelines, which run outside of it, on Spark.

An archive job commits how far each partition is archived, as offsets of a group of its own. A streaming query
that writes to topics commits its records with the number of its epoch, under its name. More than that the
broker is not told.
"""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from posthouse.broker.access.operations import Kind
from posthouse.broker.groups.offsets import Offsets
from posthouse.model.ids import ARCHIVE_GROUP
from posthouse.model.scopes import TRANSACTIONS
from posthouse.protocols.admin.context import CallContext
from posthouse.protocols.admin.endpoint import Endpoint, NoBody
from posthouse.protocols.admin.lists_elsewhere import SpreadList
from posthouse.protocols.admin.paging import Page, Paging, page_in_turns, page_of_names
from posthouse.protocols.admin.turns import in_turns

_MOST_PARTITIONS: Final = 100
"""Of one topic in a list."""
_NOT_TOLD = (
    "Pipelines run outside of the broker, which is not told whether one is running. It knows the sinks that "
    "have committed an epoch, and their open transactions."
)


class ArchivedPartition(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    archived: Annotated[int, Meta(description="Everything below this offset is in the archive.")]
    start: int
    end: int


class ArchivedTopic(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    retention_local_ms: Annotated[int, Meta(description="Age at which archived records go; -1: as others.")]
    retention_local_bytes: int
    partitions: Annotated[
        list[ArchivedPartition],
        Meta(description=f"Those that are archived, by number, at most {_MOST_PARTITIONS} of them."),
    ]
    partitions_total: Annotated[int, Meta(description="Partitions that are archived.")]
    behind: Annotated[int, Meta(description="Offsets that are not archived yet, of all these partitions.")]


class Sink(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    last_epoch: Annotated[int | None, Meta(description="The highest number that was committed.")]
    open_transactions: int


class Pipelines(msgspec.Struct, frozen=True, kw_only=True):
    running: Annotated[None, Meta(description="Not known to the broker; see `note`.")]
    note: str
    sinks: Page[Sink]


async def _archive(context: CallContext, paging: Paging, body: NoBody) -> Page[ArchivedTopic]:
    offsets = await context.broker.groups.offsets.stored(ARCHIVE_GROUP)
    indices: dict[str, list[int]] = {}
    async for place in in_turns(offsets.partitions(ARCHIVE_GROUP)):
        topic = context.broker.topics.find_by_id(place.topic)
        if topic is not None:
            indices.setdefault(topic.name, []).append(place.index)
    names = await page_of_names(indices, paging, sees=lambda name: context.guard.sees(Kind.TOPIC, name))
    items = [await _archived(context, name, sorted(indices[name]), offsets) for name in names.items]
    return Page(items=[each for each in items if each is not None], total=names.total, next=names.next)


async def _archived(
    context: CallContext, name: str, indices: Sequence[int], offsets: Offsets
) -> ArchivedTopic | None:
    """None if the topic is deleted meanwhile."""
    topic = context.broker.topics.find(name)
    if topic is None:
        return None
    partitions: list[ArchivedPartition] = []
    total = behind = 0
    async for index in in_turns(indices):
        committed = offsets.get(ARCHIVE_GROUP, topic.partition(index))
        if committed is None or index >= topic.partitions:
            continue
        bounds = context.broker.bounds(topic, index)
        total += 1
        behind += max(bounds.end - committed.offset, 0)
        if len(partitions) < _MOST_PARTITIONS:
            partitions.append(
                ArchivedPartition(
                    partition=index, archived=committed.offset, start=bounds.start, end=bounds.end
                )
            )
    return ArchivedTopic(
        topic=topic.name,
        retention_local_ms=topic.config.retention_local_ms,
        retention_local_bytes=topic.config.retention_local_bytes,
        partitions=partitions,
        partitions_total=total,
        behind=behind,
    )


_SINKS: Final[SpreadList[Sink]] = SpreadList(
    noun="sinks",
    scopes=TRANSACTIONS,
    path=("v1", "pipelines"),
    answer=Pipelines,
    page=lambda answer: answer.sinks,
    name=lambda sink: sink.name,
)
"""Those of other brokers."""


async def _pipelines(context: CallContext, paging: Paging, body: NoBody) -> Pipelines:
    sinks = await _SINKS.whole(context, paging, lambda: _own_sinks(context, paging))
    return Pipelines(running=None, note=_NOT_TOLD, sinks=sinks)


async def _own_sinks(context: CallContext, paging: Paging) -> Page[Sink]:
    """Of this broker."""
    transactions = context.broker.transactions

    def item(name: str) -> Sink:
        return Sink(
            name=name,
            last_epoch=transactions.commit_sets.sequence_if_known(name),
            open_transactions=sum(each.work is not None for each in transactions.ids.under(name)),
        )

    return await page_in_turns(
        transactions.commit_sets.names(),
        paging,
        item,
        sees=lambda name: context.guard.sees(Kind.TRANSACTIONAL_ID, name),
    )


ARCHIVE: Final = (
    Endpoint(
        method="GET",
        path="/v1/archive",
        summary="How far topics are archived",
        tag="archive",
        handler=_archive,
        parameters=Paging,
        result=Page[ArchivedTopic],
    ),
    Endpoint(
        method="GET",
        path="/v1/pipelines",
        summary="What the broker knows of pipelines",
        tag="archive",
        handler=_pipelines,
        parameters=Paging,
        result=Pipelines,
    ),
)
