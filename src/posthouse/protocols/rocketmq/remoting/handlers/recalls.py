"""Delayed messages that are not to be delivered after all."""

from collections.abc import Coroutine
from typing import Any

from posthouse.broker.access.operations import Operation
from posthouse.model.errors import AccessRefused, TooLate
from posthouse.protocols.rocketmq.codec.codes import ResponseCode
from posthouse.protocols.rocketmq.names import topic_name
from posthouse.protocols.rocketmq.recall_handles import BadHandle, RecallHandle, decode_handle
from posthouse.protocols.rocketmq.remoting.call import Call, is_permitted
from posthouse.protocols.rocketmq.remoting.errors import Refused


def recall(call: Call) -> Coroutine[Any, Any, None]:
    name = call.text("topic")
    if not is_permitted(call, Operation.WRITE, name):
        raise AccessRefused(f"no permission to recall messages for topic {name!r}")
    try:
        handle = decode_handle(call.text("recallHandle"), call.connection.server.handle_key)
        if topic_name(handle.topic) != topic_name(name):
            raise BadHandle
    except BadHandle as error:
        raise Refused(ResponseCode.ILLEGAL_OPERATION, str(error)) from None
    return _recall(call, handle)


async def _recall(call: Call, handle: RecallHandle) -> None:
    broker = call.connection.server.broker
    try:
        await broker.delayed_records.recall(handle.delayed)
    except TooLate as error:
        raise Refused(ResponseCode.ILLEGAL_OPERATION, str(error)) from None
    call.answer(fields={"msgId": handle.message_id})
