"""The methods of the service."""

from typing import Any, Final

from posthouse.protocols.grpc.methods import Methods
from posthouse.protocols.rocketmq.grpc.handlers.acknowledge import (
    acknowledge,
    change_invisible_duration,
    forward_to_dead_letter_queue,
)
from posthouse.protocols.rocketmq.grpc.handlers.membership import heartbeat, notify_termination, telemetry
from posthouse.protocols.rocketmq.grpc.handlers.offsets import get_offset, pull, query_offset, update_offset
from posthouse.protocols.rocketmq.grpc.handlers.recall import recall
from posthouse.protocols.rocketmq.grpc.handlers.receive import receive
from posthouse.protocols.rocketmq.grpc.handlers.routes import query_assignment, query_route
from posthouse.protocols.rocketmq.grpc.handlers.send import send
from posthouse.protocols.rocketmq.grpc.handlers.transactions import end_transaction
from posthouse.protocols.rocketmq.grpc.handlers.unsupported import sync_lite_subscription
from posthouse.protocols.rocketmq.grpc.messages import service
from posthouse.protocols.rocketmq.grpc.rpc import StreamHandler, UnaryHandler, streaming, unary

_UNARY: Final[dict[str, UnaryHandler[Any, Any]]] = {
    "QueryRoute": query_route,
    "Heartbeat": heartbeat,
    "SendMessage": send,
    "QueryAssignment": query_assignment,
    "AckMessage": acknowledge,
    "ForwardMessageToDeadLetterQueue": forward_to_dead_letter_queue,
    "UpdateOffset": update_offset,
    "GetOffset": get_offset,
    "QueryOffset": query_offset,
    "EndTransaction": end_transaction,
    "NotifyClientTermination": notify_termination,
    "ChangeInvisibleDuration": change_invisible_duration,
    "RecallMessage": recall,
    "SyncLiteSubscription": sync_lite_subscription,
}
_STREAMING: Final[dict[str, StreamHandler[Any]]] = {"ReceiveMessage": receive, "PullMessage": pull}


def service_methods() -> Methods:
    methods = Methods()
    for rpc in service.RPCS:
        if rpc.streams_requests:
            methods.bidi(rpc.path, telemetry)
        elif rpc.streams_responses:
            methods.streaming(rpc.path, streaming(rpc.request, rpc.response, _STREAMING[rpc.name]))
        else:
            handler = _UNARY[rpc.name]
            methods.unary(
                rpc.path, unary(rpc.request, rpc.response, handler, is_writing=rpc.name == "SendMessage")
            )
    return methods
