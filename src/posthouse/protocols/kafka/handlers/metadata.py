"""Metadata: the node and the topics; also where topics are created by being asked for."""

from collections.abc import Coroutine
from typing import Any

from posthouse.broker.broker import LEADER_EPOCH
from posthouse.broker.topics import NewTopic
from posthouse.model.errors import PosthouseError, TopicExists, UnknownTopic
from posthouse.model.ids import TopicId
from posthouse.model.topics import Topic, check_topic_name
from posthouse.protocols.kafka.codec.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from posthouse.protocols.kafka.codec.primitives import ZERO_UUID
from posthouse.protocols.kafka.errors import ErrorCode, code_of
from posthouse.protocols.kafka.handler import NODE_ID, Context, Handler
from posthouse.protocols.kafka.operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS

_FIRST_WITH_NULL_TOPICS = 1
_FIRST_WITH_NULL_NAMES = 12

_KNOWN_PARTITIONS: list[MetadataResponsePartition] = []


def handle(
    context: Context, request: MetadataRequest
) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    wanted = request.topics
    if wanted is None or (not wanted and context.version < _FIRST_WITH_NULL_TOPICS):
        return _response(context, request, [_described(request, topic) for topic in context.broker.topics])
    found = [_found(context, topic) for topic in wanted]
    missing = [
        topic.name
        for topic, result in zip(wanted, found, strict=True)
        if isinstance(result, UnknownTopic) and topic.name
    ]
    if missing and request.allow_auto_topic_creation and context.broker.settings.auto_create_topics:
        return _create_and_answer(context, request, wanted, missing)
    return _answer(context, request, wanted, found)


async def _create_and_answer(
    context: Context, request: MetadataRequest, wanted: list[MetadataRequestTopic], missing: list[str]
) -> MetadataResponse:
    names = list(dict.fromkeys(missing))
    created = await context.broker.create_topics([NewTopic(name=name) for name in names])
    outcome = dict(zip(names, created, strict=True))
    found = []
    for topic in wanted:
        result = _found(context, topic)
        if isinstance(result, UnknownTopic) and topic.name in outcome:
            result = outcome[topic.name]
        found.append(result)
    return _answer(context, request, wanted, found)


def _found(context: Context, wanted: MetadataRequestTopic) -> Topic | PosthouseError:
    try:
        if wanted.name is None or wanted.topic_id != ZERO_UUID:
            return context.broker.topic_by_id(TopicId(wanted.topic_id))
        check_topic_name(wanted.name)
        return context.broker.topic(wanted.name)
    except PosthouseError as error:
        return error


def _answer(
    context: Context,
    request: MetadataRequest,
    wanted: list[MetadataRequestTopic],
    found: list[Topic | PosthouseError],
) -> MetadataResponse:
    topics = [
        _described(request, result) if isinstance(result, Topic) else _failed(context, topic, result)
        for topic, result in zip(wanted, found, strict=True)
    ]
    return _response(context, request, topics)


def _failed(context: Context, wanted: MetadataRequestTopic, error: PosthouseError) -> MetadataResponseTopic:
    code = code_of(error, by_id=wanted.topic_id != ZERO_UUID)
    if isinstance(error, TopicExists):
        # Somebody else is creating it at this moment: the client asks again.
        code = ErrorCode.LEADER_NOT_AVAILABLE
    name = wanted.name if context.version >= _FIRST_WITH_NULL_NAMES else wanted.name or ""
    return MetadataResponseTopic(error_code=code, name=name, topic_id=wanted.topic_id)


def _described(request: MetadataRequest, topic: Topic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        partitions=_partitions(topic.partitions),
        topic_authorized_operations=(
            TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
        ),
    )


def _partitions(count: int) -> list[MetadataResponsePartition]:
    """Partitions with the same number look the same in all topics, so they are made once."""
    _KNOWN_PARTITIONS.extend(
        MetadataResponsePartition(
            partition_index=index,
            leader_id=NODE_ID,
            leader_epoch=LEADER_EPOCH,
            replica_nodes=[NODE_ID],
            isr_nodes=[NODE_ID],
        )
        for index in range(len(_KNOWN_PARTITIONS), count)
    )
    return _KNOWN_PARTITIONS[:count]


def _response(
    context: Context,
    request: MetadataRequest,
    topics: list[MetadataResponseTopic],
    code: ErrorCode = ErrorCode.NONE,
) -> MetadataResponse:
    node = context.node
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=NODE_ID, host=node.host, port=node.port)],
        cluster_id=context.broker.cluster_id,
        controller_id=NODE_ID,
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
        error_code=code,
    )


def _refuse(context: Context, request: MetadataRequest, code: ErrorCode, message: str) -> MetadataResponse:
    topics = [
        MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id)
        for topic in request.topics or ()
    ]
    return _response(context, request, topics, code)


HANDLER = Handler(key=3, handle=handle, refuse=_refuse)
