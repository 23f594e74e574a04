"""ShareAcknowledge: a member acknowledges leased records. Durable before the answer is sent."""

from collections.abc import Coroutine
from typing import Any

from posthouse.model.ids import GroupId, MemberId, TopicId
from posthouse.protocols.kafka.codec.generated.share_acknowledge import (
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.share_groups.sessions import CLOSING, OPENING
from posthouse.protocols.kafka.share_requests import acknowledge, names, partitions


def handle(
    context: Context, request: ShareAcknowledgeRequest
) -> Coroutine[Any, Any, ShareAcknowledgeResponse]:
    group, member = names(context, request.group_id, request.member_id)
    context.require_holder_of(group)
    return _acknowledge(context, request, group, member)


async def _acknowledge(
    context: Context, request: ShareAcknowledgeRequest, group: GroupId, member: MemberId
) -> ShareAcknowledgeResponse:
    groups = context.share_groups
    epoch = request.share_session_epoch
    if epoch == OPENING:
        raise Refused(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "only a fetch opens a session")
    connection = context.origin.connection
    if epoch == CLOSING:
        session = groups.sessions.get(group, member, connection.way)
    else:
        session = groups.sessions.follow(group, member, epoch, connection)
    results = await acknowledge(
        context, group, member, partitions(request.topics), may_renew=request.is_renew_ack
    )
    if epoch == CLOSING:
        groups.end_session(session, count=False)
    if any(code for code, _ in results.values()):
        context.count_error()
    topics: dict[TopicId, ShareAcknowledgeTopicResponse] = {}
    for partition, (code, message) in results.items():
        topic = topics.setdefault(partition.topic, ShareAcknowledgeTopicResponse(topic_id=partition.topic))
        topic.partitions.append(
            PartitionData(partition_index=partition.index, error_code=code, error_message=message)
        )
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=context.broker.group_configs.get(group).share_record_lock_duration_ms,
        responses=list(topics.values()),
    )


def _refuse(
    context: Context, request: ShareAcknowledgeRequest, code: ErrorCode, message: str
) -> ShareAcknowledgeResponse:
    return ShareAcknowledgeResponse(error_code=code, error_message=message)


HANDLER = Handler(key=79, handle=handle, refuse=_refuse, counts_errors=True)
