"""ListGroups: all groups of this broker, or those of certain states and types."""

from collections.abc import Coroutine
from typing import Any

from posthouse.broker.access.operations import CLUSTER, Kind
from posthouse.model.errors import CoordinatorLoading
from posthouse.protocols.kafka.codec.generated.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.protocols.kafka.group_names import STATE_NAMES, TYPE_NAMES
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.permissions import sees_group


def handle(
    context: Context, request: ListGroupsRequest
) -> ListGroupsResponse | Coroutine[Any, Any, ListGroupsResponse]:
    if context.broker.groups.offsets.reading is None:
        return _listed(context, request)
    return _follow_and_list(context, request)


async def _follow_and_list(context: Context, request: ListGroupsRequest) -> ListGroupsResponse:
    """Some groups exist only by what transactions have committed."""
    if context.broker.groups.is_loading:
        raise CoordinatorLoading("some groups are being loaded; try again in a moment")
    await context.broker.groups.offsets.follow()
    return _listed(context, request)


def _listed(context: Context, request: ListGroupsRequest) -> ListGroupsResponse:
    states = {each.lower() for each in request.states_filter}
    types = {each.lower() for each in request.types_filter}
    sees_all = context.guard.sees(Kind.CLUSTER, CLUSTER)
    found = [
        ListedGroup(
            group_id=group.id,
            protocol_type=group.protocol_type,
            group_state=STATE_NAMES[group.state],
            group_type=TYPE_NAMES[group.kind],
        )
        for group in (*context.broker.groups.listed(), *context.share_groups.listed())
        if sees_all or sees_group(context, group.id)
    ]
    return ListGroupsResponse(
        groups=[
            group
            for group in found
            if (not states or group.group_state.lower() in states)
            and (not types or group.group_type.lower() in types)
        ]
    )


def _refuse(
    context: Context, request: ListGroupsRequest, code: ErrorCode, message: str
) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=code)


HANDLER = Handler(key=16, handle=handle, refuse=_refuse)
