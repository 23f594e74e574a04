"""DescribeShareGroupOffsets: from where on share groups still have records to settle, and how many."""

from collections.abc import Mapping

from posthouse.broker.access.operations import Operation
from posthouse.broker.shares.partition import SharePartition
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

Shares = Mapping[PartitionId, SharePartition]


def handle(context: Context, request: DescribeShareGroupOffsetsRequest) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(groups=[_of_group(context, each) for each in request.groups])


def _of_group(
    context: Context, wanted: DescribeShareGroupOffsetsRequestGroup
) -> DescribeShareGroupOffsetsResponseGroup:
    answer = DescribeShareGroupOffsetsResponseGroup(group_id=wanted.group_id)
    try:
        require_on_group(context, Operation.DESCRIBE, wanted.group_id)
        shares = context.broker.shares.progress(GroupId(wanted.group_id))
    except (PosthouseError, Refused) as error:
        answer.error_code, answer.error_message = code_of(error), str(error)
        return answer
    topics = _everything(context, shares) if wanted.topics is None else wanted.topics
    answer.topics = [_of_topic(context, shares, topic) for topic in topics]
    return answer


def _everything(context: Context, shares: Shares) -> list[DescribeShareGroupOffsetsRequestTopic]:
    found: dict[str, list[int]] = {}
    for partition in shares:
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
    context: Context, shares: Shares, wanted: DescribeShareGroupOffsetsRequestTopic
) -> DescribeShareGroupOffsetsResponseTopic:
    answer = DescribeShareGroupOffsetsResponseTopic(topic_name=wanted.topic_name)
    try:
        require_on_topic(context, Operation.DESCRIBE, wanted.topic_name)
        topic = context.broker.topic(wanted.topic_name)
    except (UnknownTopic, Refused) as error:
        answer.partitions = [
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=index,
                start_offset=_NOTHING,
                error_code=code_of(error),
                error_message=str(error),
            )
            for index in wanted.partitions
        ]
        return answer
    answer.topic_id = topic.id
    answer.partitions = [_of_partition(context, shares, topic, index) for index in wanted.partitions]
    return answer


def _of_partition(
    context: Context, shares: Shares, topic: Topic, index: int
) -> DescribeShareGroupOffsetsResponsePartition:
    answer = DescribeShareGroupOffsetsResponsePartition(partition_index=index, start_offset=_NOTHING)
    try:
        end = context.broker.bounds(topic, index).end
    except PosthouseError as error:
        answer.error_code, answer.error_message = code_of(error), str(error)
        return answer
    share = shares.get(topic.partition(index))
    if share is not None:
        progress = share.progress
        answer.start_offset = progress.floor
        answer.leader_epoch = LEADER_EPOCH
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
