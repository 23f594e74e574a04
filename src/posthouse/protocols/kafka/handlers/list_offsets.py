"""ListOffsets: the offset at an end of the log, or at a time."""

from enum import IntEnum

from posthouse.broker.access.operations import Operation
from posthouse.model.errors import PosthouseError
from posthouse.model.topics import Topic
from posthouse.protocols.kafka.codec.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.leader_epochs import check_leader_epoch
from posthouse.protocols.kafka.permissions import require_on_topic
from posthouse.protocols.kafka.unknown_topics import refresh_ends
from posthouse.records.batch import LEADER_EPOCH
from posthouse.storage.bounds import TimestampedOffset

_NO_TIMESTAMP = -1
_READ_COMMITTED = 1


class Place(IntEnum):
    """Special timestamps that stand for a place in the log."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


_FIRST_VERSION_WITH = {
    Place.MAX_TIMESTAMP: 7,
    Place.EARLIEST_LOCAL: 8,
    Place.LATEST_TIERED: 9,
    Place.EARLIEST_PENDING_UPLOAD: 11,
}
# There is no tiered storage, so these offsets are unknown.
_UNKNOWN_PLACES = (Place.LATEST_TIERED, Place.EARLIEST_PENDING_UPLOAD)


async def handle(context: Context, request: ListOffsetsRequest) -> ListOffsetsResponse:
    stable_only = request.isolation_level == _READ_COMMITTED
    await refresh_ends(
        context,
        ((topic.name, [each.partition_index for each in topic.partitions]) for topic in request.topics),
    )
    return ListOffsetsResponse(
        topics=[await _list_topic(context, topic, stable_only) for topic in request.topics]
    )


async def _list_topic(
    context: Context, wanted: ListOffsetsTopic, stable_only: bool
) -> ListOffsetsTopicResponse:
    answers = []
    for partition in wanted.partitions:
        answer = ListOffsetsPartitionResponse(partition_index=partition.partition_index)
        answers.append(answer)
        try:
            require_on_topic(context, Operation.DESCRIBE, wanted.name)
            check_leader_epoch(partition.current_leader_epoch)
            found = await _find(context, context.broker.topic(wanted.name), partition, stable_only)
        except (PosthouseError, Refused) as error:
            answer.error_code = code_of(error)
            continue
        if found is not None:
            answer.offset = found.offset
            answer.timestamp = found.timestamp
            answer.leader_epoch = LEADER_EPOCH
    return ListOffsetsTopicResponse(name=wanted.name, partitions=answers)


async def _find(
    context: Context, topic: Topic, wanted: ListOffsetsPartition, stable_only: bool
) -> TimestampedOffset | None:
    timestamp, index = wanted.timestamp, wanted.partition_index
    broker = context.broker
    bounds = broker.bounds(topic, index)
    if timestamp >= 0:
        found = await broker.find_timestamp(topic, index, timestamp)
        return None if stable_only and found is not None and found.offset >= bounds.stable else found
    if timestamp < min(Place) or context.version < _FIRST_VERSION_WITH.get(Place(timestamp), 0):
        raise Refused(
            ErrorCode.UNSUPPORTED_VERSION,
            f"timestamp {timestamp} has no meaning in version {context.version}",
        )
    if timestamp == Place.LATEST:
        return TimestampedOffset(bounds.stable if stable_only else bounds.end, _NO_TIMESTAMP)
    if timestamp == Place.MAX_TIMESTAMP:
        return await broker.find_max_timestamp(topic, index)
    if timestamp in _UNKNOWN_PLACES:
        return None
    return TimestampedOffset(bounds.start, _NO_TIMESTAMP)


def _refuse(
    context: Context, request: ListOffsetsRequest, code: ErrorCode, message: str
) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=each.partition_index, error_code=code)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


HANDLER = Handler(key=2, handle=handle, refuse=_refuse)
