"""Topics that requests about groups and transactions name.

In a cluster another broker may have created them a moment ago: if one is unknown, definitions are brought up
to date before the request is handled.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from posthouse.model.ids import TopicId
from posthouse.protocols.kafka.codec.generated.add_partitions_to_txn import AddPartitionsToTxnRequest
from posthouse.protocols.kafka.codec.generated.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from posthouse.protocols.kafka.codec.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from posthouse.protocols.kafka.codec.generated.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
)
from posthouse.protocols.kafka.codec.generated.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
)
from posthouse.protocols.kafka.codec.generated.offset_commit import OffsetCommitRequest
from posthouse.protocols.kafka.codec.generated.offset_delete import OffsetDeleteRequest
from posthouse.protocols.kafka.codec.generated.offset_fetch import OffsetFetchRequest
from posthouse.protocols.kafka.codec.generated.share_acknowledge import ShareAcknowledgeRequest
from posthouse.protocols.kafka.codec.generated.share_fetch import ShareFetchRequest
from posthouse.protocols.kafka.codec.generated.share_group_heartbeat import ShareGroupHeartbeatRequest
from posthouse.protocols.kafka.codec.generated.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from posthouse.protocols.kafka.codec.generated.txn_offset_commit import TxnOffsetCommitRequest
from posthouse.protocols.kafka.codec.generated.write_txn_markers import WriteTxnMarkersRequest
from posthouse.protocols.kafka.codec.primitives import Message
from posthouse.protocols.kafka.handler import Answer, Context, Deferred, Handler
from posthouse.protocols.kafka.handlers import (
    add_partitions_to_txn,
    alter_share_group_offsets,
    consumer_group_heartbeat,
    delete_share_group_offsets,
    describe_share_group_offsets,
    offset_commit,
    offset_delete,
    offset_fetch,
    share_acknowledge,
    share_fetch,
    share_group_heartbeat,
    streams_group_heartbeat,
    txn_offset_commit,
    write_txn_markers,
)

_NO_ID = bytes(16)

Named = Iterator[tuple[str, bytes]]
"""The name and the id of topics, of which one is empty."""


def _of_topics(topics: Iterable[Any]) -> Named:
    """Older versions of the APIs have names, newer ones ids."""
    return ((each.name, each.topic_id) for each in topics)


def _by_name(names: Iterable[str]) -> Named:
    return ((name, _NO_ID) for name in names)


def _of_commit(request: OffsetCommitRequest) -> Named:
    return _of_topics(request.topics)


def _of_fetch(request: OffsetFetchRequest) -> Named:
    yield from _by_name(each.name for each in request.topics or ())
    for group in request.groups:
        yield from _of_topics(group.topics or ())


def _of_plain(request: OffsetDeleteRequest | TxnOffsetCommitRequest) -> Named:
    return _by_name(each.name for each in request.topics)


def _of_added(request: AddPartitionsToTxnRequest) -> Named:
    yield from _by_name(each.name for each in request.v3_and_below_topics)
    for transaction in request.transactions:
        yield from _by_name(each.name for each in transaction.topics)


def _of_markers(request: WriteTxnMarkersRequest) -> Named:
    return _by_name(topic.name for marker in request.markers for topic in marker.topics)


def _of_share_offsets(request: AlterShareGroupOffsetsRequest | DeleteShareGroupOffsetsRequest) -> Named:
    return _by_name(each.topic_name for each in request.topics)


def _of_described(request: DescribeShareGroupOffsetsRequest) -> Named:
    return _by_name(topic.topic_name for group in request.groups for topic in group.topics or ())


def _of_shares(request: ShareFetchRequest | ShareAcknowledgeRequest) -> Named:
    return (("", topic.topic_id) for topic in request.topics)


def _of_beat(request: ConsumerGroupHeartbeatRequest | ShareGroupHeartbeatRequest) -> Named:
    return _by_name(request.subscribed_topic_names or ())


def _of_streams(request: StreamsGroupHeartbeatRequest) -> Named:
    topology = request.topology
    return _by_name(
        name for each in (topology.subtopologies if topology else ()) for name in each.source_topics
    )


_NAMED: dict[int, Callable[[Any], Named]] = {
    add_partitions_to_txn.HANDLER.key: _of_added,
    alter_share_group_offsets.HANDLER.key: _of_share_offsets,
    consumer_group_heartbeat.HANDLER.key: _of_beat,
    delete_share_group_offsets.HANDLER.key: _of_share_offsets,
    describe_share_group_offsets.HANDLER.key: _of_described,
    offset_commit.HANDLER.key: _of_commit,
    offset_delete.HANDLER.key: _of_plain,
    offset_fetch.HANDLER.key: _of_fetch,
    share_acknowledge.HANDLER.key: _of_shares,
    share_fetch.HANDLER.key: _of_shares,
    share_group_heartbeat.HANDLER.key: _of_beat,
    streams_group_heartbeat.HANDLER.key: _of_streams,
    txn_offset_commit.HANDLER.key: _of_plain,
    write_txn_markers.HANDLER.key: _of_markers,
}


def looking_for_topics(handler: Handler[Any]) -> Handler[Any]:
    """The handler in a broker that may not know the newest topics."""
    named = _NAMED.get(handler.key)
    return handler if named is None else replace(handler, handle=partial(_handle, handler, named))


def _handle(
    handler: Handler[Any], named: Callable[[Any], Named], context: Context, request: Message
) -> Answer:
    topics = context.broker.topics
    for name, topic_id in named(request):
        found = topics.find(name) if topic_id == _NO_ID else topics.find_by_id(TopicId(topic_id))
        if found is None:
            return _look_and_handle(handler, context, request)
    return handler.handle(context, request)


async def _look_and_handle(handler: Handler[Any], context: Context, request: Message) -> Message | None:
    await context.broker.refresh_definitions()
    answer = handler.handle(context, request)
    if isinstance(answer, Deferred):
        return answer.finish(await answer.future)
    return answer if answer is None or isinstance(answer, Message) else await answer
