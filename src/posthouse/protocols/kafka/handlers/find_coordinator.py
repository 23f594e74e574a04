"""FindCoordinator: each group and each transactional id has one."""

from enum import IntEnum

from posthouse.broker.access.operations import Kind, Operation
from posthouse.model.ids import GroupId
from posthouse.protocols.kafka.codec.generated.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.protocols.kafka.nodes import NO_NODE_ID, Node
from posthouse.protocols.kafka.permissions import require

_FIRST_WITH_MANY_KEYS = 4


class KeyType(IntEnum):
    GROUP = 0
    TRANSACTION = 1


_KINDS: dict[int, Kind] = {KeyType.GROUP: Kind.GROUP, KeyType.TRANSACTION: Kind.TRANSACTIONAL_ID}


def handle(context: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    kind = _KINDS.get(request.key_type)
    if kind is None:
        raise Refused(ErrorCode.INVALID_REQUEST, f"nothing of the type {request.key_type} has a coordinator")
    if context.version < _FIRST_WITH_MANY_KEYS:
        require(context, Operation.DESCRIBE, kind, request.key)
        node = _node(context, kind, request.key)
        return FindCoordinatorResponse(node_id=node.id, host=node.host, port=node.port)
    return FindCoordinatorResponse(
        coordinators=[_coordinator(context, kind, key) for key in request.coordinator_keys]
    )


def _coordinator(context: Context, kind: Kind, key: str) -> Coordinator:
    try:
        require(context, Operation.DESCRIBE, kind, key)
        node = _node(context, kind, key)
    except Refused as error:
        return _unknown(key, error.code, str(error))
    return Coordinator(key=key, node_id=node.id, host=node.host, port=node.port)


def _node(context: Context, kind: Kind, key: str) -> Node:
    node = context.node
    found = node.group_coordinator(GroupId(key)) if kind is Kind.GROUP else node.transaction_coordinator(key)
    if found is None:
        raise Refused(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, "no broker is the coordinator; try again in a moment"
        )
    return found


def _unknown(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=NO_NODE_ID, port=-1, error_code=code, error_message=message)


def _refuse(
    context: Context, request: FindCoordinatorRequest, code: ErrorCode, message: str
) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        error_code=code,
        error_message=message,
        node_id=NO_NODE_ID,
        port=-1,
        coordinators=[_unknown(key, code, message) for key in request.coordinator_keys],
    )


HANDLER = Handler(key=10, handle=handle, refuse=_refuse)
