"""Tells the tracer which batches a client is sent. Only called where tracing is on."""

from collections.abc import Mapping, Sequence

from posthouse.broker.subscriptions.wishes import Taken
from posthouse.broker.tracing import FetchedBatches, Tracer
from posthouse.model.errors import NotFound
from posthouse.model.ids import PartitionId, TopicId
from posthouse.protocols.kafka.codec.generated.fetch import FetchableTopicResponse, FetchRequest
from posthouse.protocols.kafka.handler import Context

_BEYOND = 2**63
"""More than any offset."""


def trace_fetch(
    tracer: Tracer,
    context: Context,
    request: FetchRequest,
    topics: Sequence[FetchableTopicResponse],
    seconds: float,
) -> None:
    """`topics` are in the order of the request, and so are their partitions. It took `seconds`."""
    fetched = []
    for wanted, topic in zip(request.topics, topics, strict=True):
        for asked, answer in zip(wanted.partitions, topic.partitions, strict=True):
            if answer.records:
                name = topic.topic or _name(context, TopicId(topic.topic_id))
                offsets = [range(asked.fetch_offset, _BEYOND)]
                fetched.append(
                    FetchedBatches(
                        topic=name, partition=answer.partition_index, data=answer.records, wanted=offsets
                    )
                )
    if fetched:
        tracer.fetched(fetched, context.client_id, started=tracer.now() - int(seconds * 1e9))


def trace_share_fetch(
    tracer: Tracer, context: Context, taken: Mapping[PartitionId, Taken], started: int
) -> None:
    fetched = [
        FetchedBatches(
            topic=_name(context, partition.topic),
            partition=partition.index,
            data=each.data,
            wanted=[range(run.first, run.last + 1) for run in each.runs],
        )
        for partition, each in taken.items()
        if each.runs
    ]
    if fetched:
        tracer.fetched(fetched, context.client_id, started=started)


def _name(context: Context, topic: TopicId) -> str:
    try:
        return context.broker.topic_by_id(topic).name
    except NotFound:
        return topic.hex()  # deleted while it was read
