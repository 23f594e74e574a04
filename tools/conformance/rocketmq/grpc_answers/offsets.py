"""Offsets, and pulls from one on."""

from posthouse.protocols.rocketmq.grpc.messages.definition import MessageQueue, Resource
from posthouse.protocols.rocketmq.grpc.messages.service import (
    GetOffsetRequest,
    PullMessageRequest,
    QueryOffsetRequest,
    UpdateOffsetRequest,
)
from tools.conformance.rocketmq.grpc_answers.members import PUSH, consuming, entry
from tools.conformance.rocketmq.grpc_answers.sends import message, send
from tools.conformance.rocketmq.grpc_answers.steps import Steps

QUEUE = MessageQueue(topic=Resource(name="offsets"), id=0)
GROUP = Resource(name="group")


async def run(steps: Steps) -> None:
    await steps.call("send of what is pulled", send(message("offsets")))
    async with steps.member("pulling", consuming("group", entry("offsets"), kind=PUSH)) as client:
        pull = PullMessageRequest(group=GROUP, message_queue=QUEUE, batch_size=32)
        await steps.receive("pull", pull, client)
        await steps.call(
            "commit of an offset", UpdateOffsetRequest(group=GROUP, message_queue=QUEUE, offset=1), client
        )
        await steps.call("committed offset", GetOffsetRequest(group=GROUP, message_queue=QUEUE), client)
        await steps.call("offset of the beginning", QueryOffsetRequest(message_queue=QUEUE), client)
