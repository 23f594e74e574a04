"""OffsetDelete: deletes offsets of topics that a group no longer reads."""

from posthouse.broker.access.operations import Operation
from posthouse.model.errors import PosthouseError, UnknownPartition
from posthouse.model.ids import GroupId, PartitionId
from posthouse.protocols.kafka.codec.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import require_on_group, require_on_topic


async def handle(context: Context, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    require_on_group(context, Operation.DELETE, request.group_id)
    partitions: list[PartitionId] = []
    places: list[OffsetDeleteResponsePartition] = []
    topics = []
    for wanted in request.topics:
        answer = OffsetDeleteResponseTopic(name=wanted.name)
        topics.append(answer)
        for each in wanted.partitions:
            place = OffsetDeleteResponsePartition(partition_index=each.partition_index)
            answer.partitions.append(place)
            try:
                partitions.append(_partition(context, wanted.name, each.partition_index))
            except (PosthouseError, Refused) as error:
                place.error_code = code_of(error)
            else:
                places.append(place)
    results = await context.broker.groups.delete_offsets(GroupId(request.group_id), partitions)
    for place, result in zip(places, results, strict=True):
        if result is not None:
            place.error_code = code_of(result)
    return OffsetDeleteResponse(topics=topics)


def _partition(context: Context, name: str, index: int) -> PartitionId:
    require_on_topic(context, Operation.READ, name)
    topic = context.broker.topic(name)
    if not 0 <= index < topic.partitions:
        raise UnknownPartition(f"topic {name!r} has no partition {index}")
    return topic.partition(index)


def _refuse(
    context: Context, request: OffsetDeleteRequest, code: ErrorCode, message: str
) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=code)


HANDLER = Handler(key=47, handle=handle, refuse=_refuse)
