"""DeleteGroups: deletes groups without members, with their offsets."""

from posthouse.broker.access.operations import Operation
from posthouse.model.errors import PosthouseError
from posthouse.model.ids import GroupId
from posthouse.protocols.kafka.codec.generated.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused, code_of
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import require_on_group


async def handle(context: Context, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    results = []
    for name in dict.fromkeys(request.groups_names):
        code = ErrorCode.NONE
        try:
            require_on_group(context, Operation.DELETE, name)
            await _delete(context, GroupId(name))
        except (PosthouseError, Refused) as error:
            code = code_of(error)
        results.append(DeletableGroupResult(group_id=name, error_code=code))
    return DeleteGroupsResponse(results=results)


async def _delete(context: Context, group: GroupId) -> None:
    if group in context.broker.subscriptions:
        await context.share_groups.delete(group)
    else:
        await context.broker.groups.delete(group)


def _refuse(
    context: Context, request: DeleteGroupsRequest, code: ErrorCode, message: str
) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=name, error_code=code) for name in request.groups_names]
    )


HANDLER = Handler(key=42, handle=handle, refuse=_refuse)
