"""ShareGroupHeartbeat: a member of a share group joins, reports or leaves."""

from posthouse.broker.access.operations import Operation
from posthouse.broker.groups.membership import MemberClient
from posthouse.model.ids import GroupId, MemberId
from posthouse.protocols.kafka.codec.generated.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import require_on_group, require_on_topic
from posthouse.protocols.kafka.share_groups.group import ShareBeat, ShareBeatAnswer


async def handle(context: Context, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
    names = request.subscribed_topic_names
    require_on_group(context, Operation.READ, request.group_id)
    for name in names or ():
        require_on_topic(context, Operation.DESCRIBE, name)
    group = GroupId(request.group_id)
    groups = context.share_groups
    answer = await groups.beat(
        group,
        ShareBeat(
            member=MemberId(request.member_id),
            epoch=request.member_epoch,
            client=MemberClient(id=context.client_id or "", host=context.client_host),
            rack=request.rack_id,
            topics=None if names is None else frozenset(names),
        ),
    )
    return ShareGroupHeartbeatResponse(
        member_id=request.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=context.broker.group_configs.get(group).share_heartbeat_interval_ms,
        assignment=_assignment(answer),
    )


def _assignment(answer: ShareBeatAnswer) -> Assignment | None:
    if answer.assignment is None:
        return None
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic, partitions=list(range(count)))
            for topic, count in answer.assignment.items()
        ]
    )


def _refuse(
    context: Context, request: ShareGroupHeartbeatRequest, code: ErrorCode, message: str
) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=code, error_message=message)


HANDLER = Handler(key=76, handle=handle, refuse=_refuse)
