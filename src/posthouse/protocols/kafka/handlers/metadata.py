"""Metadata: the nodes and the topics; also auto-creates topics."""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from posthouse.broker.access.operations import Operation
from posthouse.broker.topics import NewTopic
from posthouse.model.errors import PosthouseError, TopicExists, UnknownTopic
from posthouse.model.ids import TopicId
from posthouse.model.topics import Topic, check_topic_name
from posthouse.protocols.kafka.codec.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from posthouse.protocols.kafka.codec.primitives import ZERO_UUID
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.led_partitions import led_partitions
from posthouse.protocols.kafka.many_topics import STRETCH, ManyTopics, encode, take_topics
from posthouse.protocols.kafka.nodes import NO_NODE_ID
from posthouse.protocols.kafka.operations import NOT_ASKED, cluster_operations, topic_operations
from posthouse.protocols.kafka.permissions import require_creation, require_on_topic, sees_topic
from posthouse.protocols.kafka.unknown_topics import look_for_topic

_FIRST_WITH_NULL_TOPICS = 1
_FIRST_WITH_NULL_NAMES = 12
_LOOKED_AT_IN_A_TURN = 500

_Found = Topic | PosthouseError | Refused


def handle(
    context: Context, request: MetadataRequest
) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    wanted = request.topics
    if wanted is None or (not wanted and context.version < _FIRST_WITH_NULL_TOPICS):
        topics = list(context.broker.topics)
        if len(topics) > _LOOKED_AT_IN_A_TURN:
            return _respond_with_all(context, request, topics)
        seen = [topic for topic in topics if sees_topic(context, topic.name)]
        return _respond(context, request, seen, (_described(context, request, topic) for topic in seen))
    found = [_found(context, topic) for topic in wanted]
    for topic, result in zip(wanted, found, strict=True):
        if isinstance(result, UnknownTopic):
            return _look_and_answer(context, request, wanted, found, topic)
    return _answer(context, request, wanted, found)


async def _look_and_answer(
    context: Context,
    request: MetadataRequest,
    wanted: list[MetadataRequestTopic],
    found: list[_Found],
    unknown: MetadataRequestTopic,
) -> MetadataResponse:
    """Another broker may have created the topic. If not, it is created if that is asked for and allowed."""
    by_id = unknown.name is None or unknown.topic_id != ZERO_UUID
    await look_for_topic(context, unknown.name or "", TopicId(unknown.topic_id) if by_id else None)
    found = [
        _found(context, topic) if isinstance(result, UnknownTopic) else result
        for topic, result in zip(wanted, found, strict=True)
    ]
    missing = [
        topic.name
        for topic, result in zip(wanted, found, strict=True)
        if isinstance(result, UnknownTopic) and topic.name
    ]
    if missing and request.allow_auto_topic_creation and context.broker.settings.auto_create_topics:
        found = await _created(context, wanted, missing)
    answer = _answer(context, request, wanted, found)
    return answer if isinstance(answer, MetadataResponse) else await answer


def _respond(
    context: Context,
    request: MetadataRequest,
    found: Sequence[_Found],
    topics: Iterable[MetadataResponseTopic],
) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    size = sum(1 + (topic.partitions if isinstance(topic, Topic) else 0) for topic in found)
    if size > STRETCH:
        return _respond_in_stretches(context, request, topics)
    return _filled(MetadataResponse(topics=list(topics)), context, request)


async def _respond_with_all(
    context: Context, request: MetadataRequest, topics: Sequence[Topic]
) -> MetadataResponse:
    """Yields to other clients while checking permissions, which takes time even if nothing is visible."""
    seen: list[Topic] = []
    for start in range(0, len(topics), _LOOKED_AT_IN_A_TURN):
        turn = topics[start : start + _LOOKED_AT_IN_A_TURN]
        seen += [topic for topic in turn if sees_topic(context, topic.name)]
        await asyncio.sleep(0)
    described = (_described(context, request, topic) for topic in seen)
    return await _respond_in_stretches(context, request, described)


async def _respond_in_stretches(
    context: Context, request: MetadataRequest, topics: Iterable[MetadataResponseTopic]
) -> MetadataResponse:
    response = ManyTopics()
    await take_topics(response, context.version, topics)
    return _filled(response, context, request)


async def _created(context: Context, wanted: list[MetadataRequestTopic], missing: list[str]) -> list[_Found]:
    outcome: dict[str, _Found] = {}
    for name in dict.fromkeys(missing):
        try:
            require_creation(context, name)
        except Refused as error:
            outcome[name] = error
    deleted = context.broker.recent_deletions
    names = [name for name in dict.fromkeys(missing) if name not in outcome and name not in deleted]
    created = await context.broker.create_topics([NewTopic(name=name) for name in names])
    outcome |= zip(names, created, strict=True)
    found = []
    for topic in wanted:
        result = _found(context, topic)
        if isinstance(result, UnknownTopic) and topic.name in outcome:
            result = outcome[topic.name]
        found.append(result)
    return found


def _found(context: Context, wanted: MetadataRequestTopic) -> _Found:
    try:
        if wanted.name is None or wanted.topic_id != ZERO_UUID:
            topic = context.broker.topic_by_id(TopicId(wanted.topic_id))
            require_on_topic(context, Operation.DESCRIBE, topic.name)
            return topic
        require_on_topic(context, Operation.DESCRIBE, wanted.name)
        check_topic_name(wanted.name)
        return context.broker.topic(wanted.name)
    except (PosthouseError, Refused) as error:
        return error


def _answer(
    context: Context,
    request: MetadataRequest,
    wanted: list[MetadataRequestTopic],
    found: list[_Found],
) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    topics = (
        _described(context, request, result) if isinstance(result, Topic) else _failed(context, topic, result)
        for topic, result in zip(wanted, found, strict=True)
    )
    return _respond(context, request, found, topics)


def _failed(
    context: Context, wanted: MetadataRequestTopic, error: PosthouseError | Refused
) -> MetadataResponseTopic:
    code = code_of(error, by_id=wanted.topic_id != ZERO_UUID)
    if isinstance(error, TopicExists):
        # Another request is creating the topic: the client retries.
        code = ErrorCode.LEADER_NOT_AVAILABLE
    name = wanted.name if context.version >= _FIRST_WITH_NULL_NAMES else wanted.name or ""
    return MetadataResponseTopic(error_code=code, name=name, topic_id=wanted.topic_id)


def _described(context: Context, request: MetadataRequest, topic: Topic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        partitions=led_partitions(context.node.replicas(topic)),
        topic_authorized_operations=(
            topic_operations(context.guard, topic.name)
            if request.include_topic_authorized_operations
            else NOT_ASKED
        ),
    )


def _filled(response: MetadataResponse, context: Context, request: MetadataRequest) -> MetadataResponse:
    """Fill in all fields but the topics."""
    response.brokers = [
        MetadataResponseBroker(node_id=each.id, host=each.host, port=each.port, rack=each.rack)
        for each in context.node.all()
    ]
    response.cluster_id = context.broker.cluster_id
    controller = context.node.coordinator()
    response.controller_id = NO_NODE_ID if controller is None else controller.id
    response.cluster_authorized_operations = (
        cluster_operations(context.guard) if request.include_cluster_authorized_operations else NOT_ASKED
    )
    return response


def _refuse(context: Context, request: MetadataRequest, code: ErrorCode, message: str) -> MetadataResponse:
    topics = [
        MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id)
        for topic in request.topics or ()
    ]
    return _filled(MetadataResponse(topics=topics, error_code=code), context, request)


HANDLER = Handler(key=3, handle=handle, refuse=_refuse, encode=encode)
