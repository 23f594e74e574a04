"""LeaveGroup: removes one member, or in newer versions several, by member id or by instance id."""

from posthouse.broker.access.operations import Operation
from posthouse.broker.groups.membership import Leaving
from posthouse.model.ids import GroupId, InstanceId, MemberId
from posthouse.protocols.kafka.codec.generated.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode, code_of
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import require_on_group

_FIRST_WITH_MANY_MEMBERS = 3


def handle(context: Context, request: LeaveGroupRequest) -> LeaveGroupResponse:
    require_on_group(context, Operation.READ, request.group_id)
    single = context.version < _FIRST_WITH_MANY_MEMBERS
    members = [MemberIdentity(member_id=request.member_id)] if single else request.members
    results = context.broker.groups.leave(GroupId(request.group_id), [_leaving(each) for each in members])
    codes = [ErrorCode.NONE if error is None else code_of(error) for error in results]
    if single:
        return LeaveGroupResponse(error_code=codes[0])
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=code
            )
            for member, code in zip(members, codes, strict=True)
        ]
    )


def _leaving(member: MemberIdentity) -> Leaving:
    instance = member.group_instance_id
    return Leaving(
        member=MemberId(member.member_id) if member.member_id else None,
        instance=None if instance is None else InstanceId(instance),
    )


def _refuse(
    context: Context, request: LeaveGroupRequest, code: ErrorCode, message: str
) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=code)


HANDLER = Handler(key=13, handle=handle, refuse=_refuse)
