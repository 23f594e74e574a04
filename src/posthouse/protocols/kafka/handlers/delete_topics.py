"""DeleteTopics: by name, or by id in newer versions."""

from collections import Counter

from posthouse.broker.access.operations import Operation
from posthouse.model.errors import PosthouseError
from posthouse.model.ids import TopicId
from posthouse.model.topics import Topic
from posthouse.protocols.kafka.codec.generated.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from posthouse.protocols.kafka.codec.primitives import ZERO_UUID
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import require_on_topic, sees_topic


async def handle(context: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    results: list[DeletableTopicResult] = []
    topics: list[Topic] = []
    occurrences = Counter((each.name, each.topic_id) for each in _named(request))
    for (name, topic_id), times in occurrences.items():
        result = DeletableTopicResult(name=name, topic_id=topic_id)
        results.append(result)
        try:
            if times > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "the topic is named more than once")
            topic = await _found(context, result)
        except (PosthouseError, Refused) as error:
            result.error_code, result.error_message = code_of(error, by_id=name is None), str(error)
        else:
            result.name, result.topic_id = topic.name, topic.id
            topics.append(topic)
    await context.broker.delete_topics(list({topic.id: topic for topic in topics}.values()))
    return DeleteTopicsResponse(responses=results)


def _named(request: DeleteTopicsRequest) -> list[DeleteTopicState]:
    return request.topics or [DeleteTopicState(name=name) for name in request.topic_names]


async def _found(context: Context, result: DeletableTopicResult) -> Topic:
    """The topic. A client that names it by id gets its name only if it may describe it."""
    if result.name is None:
        topic = await context.broker.find_topic_by_id(TopicId(result.topic_id))
        if sees_topic(context, topic.name):
            result.name = topic.name
        require_on_topic(context, Operation.DELETE, topic.name)
        return topic
    if result.topic_id != ZERO_UUID:
        raise Refused(ErrorCode.INVALID_REQUEST, "a topic is named by its name or by its id, not by both")
    require_on_topic(context, Operation.DELETE, result.name)
    return await context.broker.find_topic(result.name)


def _refuse(
    context: Context, request: DeleteTopicsRequest, code: ErrorCode, message: str
) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(
                name=each.name, topic_id=each.topic_id, error_code=code, error_message=message
            )
            for each in _named(request)
        ]
    )


HANDLER = Handler(key=20, handle=handle, refuse=_refuse)
