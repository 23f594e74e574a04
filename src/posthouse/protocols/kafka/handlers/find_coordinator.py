"""FindCoordinator: it is always this node."""

from enum import IntEnum

from posthouse.protocols.kafka.codec.generated.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode, Refused
from posthouse.protocols.kafka.handler import NODE_ID, Context, Handler

_FIRST_WITH_MANY_KEYS = 4
_NO_NODE = -1


class KeyType(IntEnum):
    GROUP = 0
    TRANSACTION = 1


_KEY_TYPES = frozenset(map(int, KeyType))


def handle(context: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if request.key_type not in _KEY_TYPES:
        raise Refused(ErrorCode.INVALID_REQUEST, f"nothing of the type {request.key_type} has a coordinator")
    node = context.node
    if context.version < _FIRST_WITH_MANY_KEYS:
        return FindCoordinatorResponse(node_id=NODE_ID, host=node.host, port=node.port)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=NODE_ID, host=node.host, port=node.port)
            for key in request.coordinator_keys
        ]
    )


def _refuse(
    context: Context, request: FindCoordinatorRequest, code: ErrorCode, message: str
) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        error_code=code,
        error_message=message,
        node_id=_NO_NODE,
        port=-1,
        coordinators=[
            Coordinator(key=key, node_id=_NO_NODE, port=-1, error_code=code, error_message=message)
            for key in request.coordinator_keys
        ],
    )


HANDLER = Handler(key=10, handle=handle, refuse=_refuse)
