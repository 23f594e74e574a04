"""Delayed messages that are not to be delivered after all."""

from collections.abc import Coroutine
from typing import Any

from posthouse.broker.access.operations import Operation
from posthouse.model.errors import TooLate
from posthouse.protocols.rocketmq.grpc.converting import name_of
from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.protocols.rocketmq.grpc.messages.service import RecallMessageRequest, RecallMessageResponse
from posthouse.protocols.rocketmq.grpc.rpc import Answer, Rpc
from posthouse.protocols.rocketmq.grpc.statuses import OK, Refused
from posthouse.protocols.rocketmq.names import topic_name
from posthouse.protocols.rocketmq.recall_handles import KEY_PURPOSE, BadHandle, RecallHandle, decode_handle


def recall(
    rpc: Rpc, request: RecallMessageRequest, answer: Answer[RecallMessageResponse]
) -> Coroutine[Any, Any, None]:
    name = name_of(request.topic)
    rpc.check_topic(name, Operation.WRITE)
    try:
        handle = decode_handle(request.recall_handle, rpc.server.broker.access.key(KEY_PURPOSE))
        if topic_name(handle.topic) != topic_name(name):
            raise BadHandle
    except BadHandle as error:
        raise Refused(Code.BAD_REQUEST, str(error)) from None
    return _recall(rpc, handle, answer)


async def _recall(rpc: Rpc, handle: RecallHandle, answer: Answer[RecallMessageResponse]) -> None:
    try:
        await rpc.server.broker.delayed_records.recall(handle.delayed)
    except TooLate as error:
        raise Refused(Code.PRECONDITION_FAILED, str(error)) from None
    answer.give(RecallMessageResponse(status=OK, message_id=handle.message_id))
