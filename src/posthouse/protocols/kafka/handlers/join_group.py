"""JoinGroup: joins a group, or rejoins it in a rebalance."""

from posthouse.broker.access.operations import Operation
from posthouse.broker.groups.membership import Joined, JoinRequest, MemberClient, OfferedProtocol
from posthouse.model.errors import MemberIdRequired, PosthouseError
from posthouse.model.ids import GroupId, InstanceId, MemberId
from posthouse.protocols.kafka.codec.generated.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from posthouse.protocols.kafka.errors import ErrorCode, code_of
from posthouse.protocols.kafka.handler import Context, Deferred, Handler
from posthouse.protocols.kafka.permissions import require_on_group

_FIRST_WITH_REBALANCE_TIMEOUT = 1
_FIRST_WITH_REQUIRED_ID = 4
_FIRST_WITH_NULL_PROTOCOL = 7
_FIRST_WITH_SKIPPED_ASSIGNMENT = 9


def handle(context: Context, request: JoinGroupRequest) -> Deferred:
    require_on_group(context, Operation.READ, request.group_id)
    joining = context.broker.groups.join(GroupId(request.group_id), _wanted(context, request))

    def finish(result: Joined | PosthouseError) -> JoinGroupResponse:
        if isinstance(result, MemberIdRequired):
            return _failed(context, ErrorCode.MEMBER_ID_REQUIRED, result.member_id)
        if isinstance(result, PosthouseError):
            return _failed(context, code_of(result), request.member_id)
        return _joined(result)

    return Deferred(joining, finish)


def _wanted(context: Context, request: JoinGroupRequest) -> JoinRequest:
    rebalance_ms = request.rebalance_timeout_ms
    if context.version < _FIRST_WITH_REBALANCE_TIMEOUT:
        rebalance_ms = request.session_timeout_ms
    return JoinRequest(
        member=MemberId(request.member_id) if request.member_id else None,
        instance=None if request.group_instance_id is None else InstanceId(request.group_instance_id),
        client=MemberClient(id=context.client_id or "", host=context.client_host),
        protocol_type=request.protocol_type,
        protocols=tuple(
            OfferedProtocol(name=each.name, metadata=bytes(each.metadata)) for each in request.protocols
        ),
        session_seconds=request.session_timeout_ms / 1000,
        rebalance_seconds=max(0, rebalance_ms) / 1000,
        must_know_its_id=context.version >= _FIRST_WITH_REQUIRED_ID,
        can_skip_assignment=context.version >= _FIRST_WITH_SKIPPED_ASSIGNMENT,
    )


def _joined(joined: Joined) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member,
        members=[
            JoinGroupResponseMember(
                member_id=member.id, group_instance_id=member.instance, metadata=member.metadata
            )
            for member in joined.members
        ],
    )


def _failed(context: Context, code: ErrorCode, member_id: str) -> JoinGroupResponse:
    protocol = None if context.version >= _FIRST_WITH_NULL_PROTOCOL else ""
    return JoinGroupResponse(error_code=code, protocol_name=protocol, member_id=member_id)


def _refuse(context: Context, request: JoinGroupRequest, code: ErrorCode, message: str) -> JoinGroupResponse:
    return _failed(context, code, request.member_id)


HANDLER = Handler(key=11, handle=handle, refuse=_refuse)
