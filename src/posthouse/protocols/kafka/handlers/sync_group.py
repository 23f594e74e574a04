"""SyncGroup: the leader sends the assignment, every member gets its part."""

from posthouse.broker.access.operations import Operation
from posthouse.broker.groups.membership import MemberIdentity, Synced, SyncRequest
from posthouse.model.errors import PosthouseError
from posthouse.model.ids import GroupId, InstanceId, MemberId
from posthouse.protocols.kafka.codec.generated.sync_group import SyncGroupRequest, SyncGroupResponse
from posthouse.protocols.kafka.errors import ErrorCode, code_of
from posthouse.protocols.kafka.handler import Context, Deferred, Handler
from posthouse.protocols.kafka.permissions import require_on_group


def handle(context: Context, request: SyncGroupRequest) -> Deferred:
    require_on_group(context, Operation.READ, request.group_id)
    instance = request.group_instance_id
    wanted = SyncRequest(
        identity=MemberIdentity(
            member=MemberId(request.member_id),
            generation=request.generation_id,
            instance=None if instance is None else InstanceId(instance),
        ),
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments=tuple((MemberId(each.member_id), bytes(each.assignment)) for each in request.assignments),
    )
    return Deferred(context.broker.groups.sync(GroupId(request.group_id), wanted), _answer)


def _answer(result: Synced | PosthouseError) -> SyncGroupResponse:
    if isinstance(result, PosthouseError):
        return SyncGroupResponse(error_code=code_of(result))
    return SyncGroupResponse(
        protocol_type=result.protocol_type, protocol_name=result.protocol, assignment=result.assignment
    )


def _refuse(context: Context, request: SyncGroupRequest, code: ErrorCode, message: str) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code)


HANDLER = Handler(key=14, handle=handle, refuse=_refuse)
