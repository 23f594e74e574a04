"""Delayed messages that are not to be delivered."""

from posthouse.protocols.rocketmq.grpc.messages.definition import Resource
from posthouse.protocols.rocketmq.grpc.messages.service import RecallMessageRequest
from tools.conformance.rocketmq.grpc_answers.sends import DELAY, HOUR, later, message, send
from tools.conformance.rocketmq.grpc_answers.steps import Steps


def recall(handle: str, topic: str = "delayed") -> RecallMessageRequest:
    return RecallMessageRequest(topic=Resource(name=topic), recall_handle=handle)


async def run(steps: Steps) -> None:
    delayed = message("delayed", message_type=DELAY, delivery_timestamp=later(HOUR))
    sent = await steps.call("send of what is recalled", send(delayed), None, "offset")
    handle = sent.entries[0].recall_handle
    await steps.call("recall with the handle of another topic", recall(handle, "normal"))
    await steps.call("recall of an unknown topic", recall(handle, "unknown"))
    await steps.call("recall without a topic", recall(handle, ""))
    await steps.call("recall without a handle", recall(""))
    await steps.call("recall with a handle that is none", recall("no handle"))
    await steps.call("recall with a handle of nobody", recall("bm9ib2R5"))
    await steps.call("recall", recall(handle))
    await steps.call("recall again", recall(handle))
