"""DescribeShareGroupOffsets: the first unsettled offset of share groups in partitions, and their lag.

As in Kafka, a group, topic or partition that does not exist is not an error: there is no offset to show.
"""

from collections.abc import Mapping

from posthouse.broker.access.operations import Operation
from posthouse.broker.subscriptions.partition import SubscribedPartition
from posthouse.model.errors import PosthouseError, UnknownTopic
from posthouse.model.ids import GroupId, PartitionId
from posthouse.model.topics import Topic
from posthouse.protocols.kafka.codec.generated.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import require_on_group, require_on_topic, sees_topic
from posthouse.records.batch import LEADER_EPOCH

_NOTHING = -1

Subscribed = Mapping[PartitionId, SubscribedPartition]


def handle(context: Context, request: DescribeShareGroupOffsetsRequest) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(groups=[_of_group(context, each) for each in request.groups])


def _of_group(
    context: Context, wanted: DescribeShareGroupOffsetsRequestGroup
) -> DescribeShareGroupOffsetsResponseGroup:
    answer = DescribeShareGroupOffsetsResponseGroup(group_id=wanted.group_id)
    try:
        require_on_group(context, Operation.DESCRIBE, wanted.group_id)
        subscribed = context.broker.subscriptions.progress(GroupId(wanted.group_id))
    except (PosthouseError, Refused) as error:
        answer.error_code, answer.error_message = code_of(error), str(error)
        return answer
    topics = _everything(context, subscribed) if wanted.topics is None else wanted.topics
    answer.topics = [_of_topic(context, subscribed, topic) for topic in topics]
    return answer


def _everything(context: Context, subscribed: Subscribed) -> list[DescribeShareGroupOffsetsRequestTopic]:
    found: dict[str, list[int]] = {}
    for partition in subscribed:
        try:
            name = context.broker.topic_by_id(partition.topic).name
        except UnknownTopic:
            continue
        if sees_topic(context, name):
            found.setdefault(name, []).append(partition.index)
    return [
        DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=sorted(indexes))
        for name, indexes in found.items()
    ]


def _of_topic(
    context: Context, subscribed: Subscribed, wanted: DescribeShareGroupOffsetsRequestTopic
) -> DescribeShareGroupOffsetsResponseTopic:
    answer = DescribeShareGroupOffsetsResponseTopic(topic_name=wanted.topic_name)
    try:
        require_on_topic(context, Operation.DESCRIBE, wanted.topic_name)
        topic = context.broker.topic(wanted.topic_name)
    except UnknownTopic:
        answer.partitions = [_nothing(index) for index in wanted.partitions]
        return answer
    except Refused as error:
        answer.partitions = [_refused(index, error) for index in wanted.partitions]
        return answer
    answer.topic_id = topic.id
    answer.partitions = [_of_partition(context, subscribed, topic, index) for index in wanted.partitions]
    return answer


def _nothing(index: int) -> DescribeShareGroupOffsetsResponsePartition:
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=index, start_offset=_NOTHING, leader_epoch=LEADER_EPOCH, lag=_NOTHING
    )


def _refused(index: int, error: Refused) -> DescribeShareGroupOffsetsResponsePartition:
    answer = _nothing(index)
    answer.error_code, answer.error_message = code_of(error), str(error)
    return answer


def _of_partition(
    context: Context, subscribed: Subscribed, topic: Topic, index: int
) -> DescribeShareGroupOffsetsResponsePartition:
    answer = _nothing(index)
    share = subscribed.get(topic.partition(index)) if 0 <= index < topic.partitions else None
    if share is not None:
        progress = share.progress
        answer.start_offset = progress.floor
        end = context.broker.bounds(topic, index).end
        answer.lag = max(end - progress.floor - progress.settled_above, 0)
    return answer


def _refuse(
    context: Context, request: DescribeShareGroupOffsetsRequest, code: ErrorCode, message: str
) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(
        groups=[
            DescribeShareGroupOffsetsResponseGroup(
                group_id=each.group_id, error_code=code, error_message=message
            )
            for each in request.groups
        ]
    )


HANDLER = Handler(key=90, handle=handle, refuse=_refuse)
