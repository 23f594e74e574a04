"""Heartbeat: keeps a member's session alive; the answer tells it to rejoin if the group rebalances."""

from posthouse.broker.access.operations import Operation
from posthouse.broker.groups.membership import MemberIdentity
from posthouse.model.ids import GroupId, InstanceId, MemberId
from posthouse.protocols.kafka.codec.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import require_on_group


def handle(context: Context, request: HeartbeatRequest) -> HeartbeatResponse:
    require_on_group(context, Operation.READ, request.group_id)
    instance = request.group_instance_id
    identity = MemberIdentity(
        member=MemberId(request.member_id),
        generation=request.generation_id,
        instance=None if instance is None else InstanceId(instance),
    )
    context.broker.groups.heartbeat(GroupId(request.group_id), identity)
    return HeartbeatResponse()


def _refuse(context: Context, request: HeartbeatRequest, code: ErrorCode, message: str) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=code)


HANDLER = Handler(key=12, handle=handle, refuse=_refuse)
