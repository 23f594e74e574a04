"""OffsetForLeaderEpoch: the end offset of a leader epoch. There is one epoch."""

from posthouse.broker.access.operations import Operation
from posthouse.model.errors import PosthouseError
from posthouse.protocols.kafka.codec.generated.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.leader_epochs import check_leader_epoch
from posthouse.protocols.kafka.permissions import require_on_topic
from posthouse.protocols.kafka.unknown_topics import refresh_ends
from posthouse.records.batch import LEADER_EPOCH


async def handle(context: Context, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    await refresh_ends(
        context,
        ((topic.topic, [each.partition for each in topic.partitions]) for topic in request.topics),
    )
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_end(context, topic.topic, partition) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _end(context: Context, name: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    answer = EpochEndOffset(partition=wanted.partition)
    try:
        require_on_topic(context, Operation.DESCRIBE, name)
        bounds = context.broker.bounds(context.broker.topic(name), wanted.partition)
        check_leader_epoch(wanted.current_leader_epoch)
    except (PosthouseError, Refused) as error:
        answer.error_code = code_of(error)
    else:
        if wanted.leader_epoch == LEADER_EPOCH:
            answer.leader_epoch, answer.end_offset = LEADER_EPOCH, bounds.end
    return answer


def _refuse(
    context: Context, request: OffsetForLeaderEpochRequest, code: ErrorCode, message: str
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(partition=each.partition, error_code=code) for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


HANDLER = Handler(key=23, handle=handle, refuse=_refuse)
