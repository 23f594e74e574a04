"""AlterShareGroupOffsets: resets the offsets of a share group without members.

As in Kafka, a group that does not exist is created, if the request has a valid partition.
"""

from posthouse.broker.access.operations import Operation
from posthouse.model.errors import OffsetOutOfRange, PosthouseError
from posthouse.model.ids import GroupId, PartitionId
from posthouse.protocols.kafka.codec.generated.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import require_on_group, require_on_topic


async def handle(context: Context, request: AlterShareGroupOffsetsRequest) -> AlterShareGroupOffsetsResponse:
    group = GroupId(request.group_id)
    require_on_group(context, Operation.READ, group)
    context.share_groups.check_movable(group)
    offsets: dict[PartitionId, int] = {}
    topics = []
    for wanted in request.topics:
        answer = AlterShareGroupOffsetsResponseTopic(topic_name=wanted.topic_name)
        topics.append(answer)
        for each in wanted.partitions:
            place = AlterShareGroupOffsetsResponsePartition(partition_index=each.partition_index)
            answer.partitions.append(place)
            try:
                partition = _partition(context, wanted.topic_name, each)
            except (PosthouseError, Refused) as error:
                place.error_code, place.error_message = code_of(error), str(error)
            else:
                answer.topic_id = partition.topic
                offsets[partition] = each.start_offset
    await context.share_groups.move(group, offsets)
    return AlterShareGroupOffsetsResponse(responses=topics)


def _partition(context: Context, name: str, wanted: AlterShareGroupOffsetsRequestPartition) -> PartitionId:
    require_on_topic(context, Operation.READ, name)
    if wanted.start_offset < 0:
        raise OffsetOutOfRange(f"there is no offset {wanted.start_offset}")
    return context.broker.partition(context.broker.topic(name), wanted.partition_index)


def _refuse(
    context: Context, request: AlterShareGroupOffsetsRequest, code: ErrorCode, message: str
) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(error_code=code, error_message=message)


HANDLER = Handler(key=91, handle=handle, refuse=_refuse)
