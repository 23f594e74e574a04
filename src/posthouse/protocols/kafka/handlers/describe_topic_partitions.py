"""DescribeTopicPartitions: like Metadata, in pages."""

from collections.abc import Iterator

from posthouse.broker.access.operations import Operation
from posthouse.model.errors import PosthouseError
from posthouse.model.topics import Topic, check_topic_name
from posthouse.protocols.kafka.codec.generated.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.led_partitions import leader_of
from posthouse.protocols.kafka.operations import topic_operations
from posthouse.protocols.kafka.permissions import require_on_topic, sees_topic
from posthouse.protocols.kafka.unknown_topics import look_for_topic
from posthouse.protocols.leaders import Replicas
from posthouse.records.batch import LEADER_EPOCH

_MAX_PARTITIONS = 2000


async def handle(
    context: Context, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    cursor = request.cursor
    if request.response_partition_limit < 1:
        raise Refused(ErrorCode.INVALID_REQUEST, "the limit of partitions must be at least 1")
    if cursor is not None and cursor.partition_index < 0:
        raise Refused(ErrorCode.INVALID_REQUEST, "the cursor's partition is negative")
    for each in request.topics:
        if context.broker.topics.find(each.name) is None:
            await look_for_topic(context, each.name, None)
            break
    left = min(request.response_partition_limit, _MAX_PARTITIONS)
    answer = DescribeTopicPartitionsResponse()
    for name in _names(context, request):
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        try:
            require_on_topic(context, Operation.DESCRIBE, name)
            check_topic_name(name)
            topic = context.broker.topic(name)
        except (PosthouseError, Refused) as error:
            answer.topics.append(DescribeTopicPartitionsResponseTopic(error_code=code_of(error), name=name))
            continue
        if left == 0:
            answer.next_cursor = Cursor(topic_name=name, partition_index=first)
            break
        end = min(topic.partitions, first + left)
        answer.topics.append(_described(context, topic, range(first, end)))
        left -= max(0, end - first)
        if end < topic.partitions:
            answer.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
    return answer


def _names(context: Context, request: DescribeTopicPartitionsRequest) -> Iterator[str]:
    """The names in order; only as many as the page has room for are examined."""
    start = request.cursor.topic_name if request.cursor is not None else ""
    if request.topics:
        return iter(sorted({topic.name for topic in request.topics if topic.name >= start}))
    return (
        topic.name
        for topic in context.broker.topics
        if topic.name >= start and sees_topic(context, topic.name)
    )


def _described(context: Context, topic: Topic, partitions: range) -> DescribeTopicPartitionsResponseTopic:
    replicas = context.node.replicas(topic)
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        partitions=[_partition(index, replicas[index]) for index in partitions],
        topic_authorized_operations=topic_operations(context.guard, topic.name),
    )


def _partition(index: int, replicas: Replicas) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.NONE if replicas else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=leader_of(replicas),
        leader_epoch=LEADER_EPOCH,
        replica_nodes=list(replicas),
        isr_nodes=list(replicas),
        eligible_leader_replicas=[],
        last_known_elr=[],
    )


def _refuse(
    context: Context, request: DescribeTopicPartitionsRequest, code: ErrorCode, message: str
) -> DescribeTopicPartitionsResponse:
    names = [topic.name for topic in request.topics]
    return DescribeTopicPartitionsResponse(
        topics=[DescribeTopicPartitionsResponseTopic(error_code=code, name=name) for name in names]
    )


HANDLER = Handler(key=75, handle=handle, refuse=_refuse)
