"""DescribeGroups: the members of classic groups and what they read."""

from posthouse.broker.access.operations import Operation
from posthouse.broker.groups.descriptions import DescribedMember
from posthouse.broker.groups.states import ClassicState
from posthouse.broker.protocol_members import ProtocolMember
from posthouse.model.errors import Unavailable, UnknownGroup
from posthouse.model.ids import GroupId
from posthouse.protocols.kafka.codec.generated.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.group_names import STATE_NAMES
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.operations import add_group_operations
from posthouse.protocols.kafka.permissions import require_on_group

_FIRST_WITH_UNKNOWN_AS_ERROR = 6


def handle(context: Context, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    groups = [_shown(context, name) for name in request.groups]
    add_group_operations(context.guard, groups, asked=request.include_authorized_operations)
    return DescribeGroupsResponse(groups=groups)


def _shown(context: Context, name: str) -> DescribedGroup:
    try:
        require_on_group(context, Operation.DESCRIBE, name)
        return _described(context, name)
    except (Unavailable, Refused) as error:
        return DescribedGroup(group_id=name, error_code=code_of(error), error_message=str(error))


def _described(context: Context, name: str) -> DescribedGroup:
    try:
        group = context.broker.groups.describe(GroupId(name))
    except UnknownGroup as error:
        if context.version < _FIRST_WITH_UNKNOWN_AS_ERROR:
            return DescribedGroup(group_id=name, group_state=STATE_NAMES[ClassicState.DEAD])
        return DescribedGroup(
            group_id=name,
            group_state=STATE_NAMES[ClassicState.DEAD],
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=str(error),
        )
    return DescribedGroup(
        group_id=name,
        group_state=STATE_NAMES[group.state],
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=[*map(_member, group.members), *map(_other, group.others)],
    )


def _member(member: DescribedMember) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.id,
        group_instance_id=member.instance,
        client_id=member.client.id,
        client_host=member.client.host,
        member_metadata=member.metadata,
        member_assignment=member.assignment,
    )


def _other(member: ProtocolMember) -> DescribedGroupMember:
    """A member that another protocol keeps: which partitions it reads is its own matter."""
    return DescribedGroupMember(member_id=member.id, client_id=member.client, client_host=member.host)


def _refuse(
    context: Context, request: DescribeGroupsRequest, code: ErrorCode, message: str
) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[
            DescribedGroup(group_id=name, error_code=code, error_message=message) for name in request.groups
        ]
    )


HANDLER = Handler(key=15, handle=handle, refuse=_refuse)
