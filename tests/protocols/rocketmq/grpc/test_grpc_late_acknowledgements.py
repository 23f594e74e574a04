"""Acknowledgements of several messages, one of which has just come back."""

import grpc.aio

from posthouse.app import App
from posthouse.broker.topics import NewTopic
from posthouse.model.clock import ManualClock
from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.protocols.rocketmq.grpc.messages.definition import (
    Message,
    MessageQueue,
    Resource,
    SystemProperties,
)
from posthouse.protocols.rocketmq.grpc.messages.proto_message import ProtoMessage
from posthouse.protocols.rocketmq.grpc.messages.service import (
    SERVICE,
    AckMessageEntry,
    AckMessageRequest,
    AckMessageResponse,
    ReceiveMessageRequest,
    ReceiveMessageResponse,
    SendMessageRequest,
)
from posthouse.protocols.rocketmq.grpc.messages.well_known import Duration
from posthouse.storage.memory.engine import MemoryStorage
from tests.served import ANY_PORT, on_any_port

JOBS, WORKERS = Resource(name="jobs"), Resource(name="workers")
CLIENT = (("x-mq-client-id", "ann"),)


async def ask(channel: grpc.aio.Channel, name: str, request: ProtoMessage) -> bytes:
    answer: bytes = await channel.unary_unary(f"/{SERVICE}/{name}")(request.encode(), metadata=CLIENT)
    return answer


async def receipt(channel: grpc.aio.Channel, milliseconds: int) -> str:
    request = ReceiveMessageRequest(
        group=WORKERS,
        message_queue=MessageQueue(topic=JOBS, id=-1),
        batch_size=1,
        invisible_duration=Duration.from_ms(milliseconds),
    )
    call = channel.unary_stream(f"/{SERVICE}/ReceiveMessage")(request.encode(), metadata=CLIENT)
    responses = [ReceiveMessageResponse.decode(data) async for data in call]
    [message] = [each.message for each in responses if each.message is not None]
    assert message.system_properties is not None
    return message.system_properties.receipt_handle or ""


async def test_the_others_are_acknowledged() -> None:
    clock = ManualClock()
    settings = on_any_port(memory=True, audit=None, rocketmq_grpc=ANY_PORT)
    app = App(settings, clock=clock, storage=MemoryStorage(clock))
    await app.start()
    await app.broker.create_topics([NewTopic(name="jobs", partitions=1)])
    await app.broker.subscriptions._timer.stop()  # it would notice that the lease is over
    try:
        async with grpc.aio.insecure_channel(str(app.listeners["rocketmq_grpc"])) as channel:
            for number in range(2):
                properties = SystemProperties(message_id=f"{number}")
                message = Message(topic=JOBS, system_properties=properties, body=b"v")
                await ask(channel, "SendMessage", SendMessageRequest(messages=(message,)))
            receipts = [await receipt(channel, each) for each in (1000, 100_000)]
            clock.advance(2)
            entries = tuple(AckMessageEntry(receipt_handle=each) for each in receipts)
            request = AckMessageRequest(group=WORKERS, topic=JOBS, entries=entries)
            response = AckMessageResponse.decode(await ask(channel, "AckMessage", request))
        codes = [each.status and each.status.code for each in response.entries]
        assert codes == [Code.INVALID_RECEIPT_HANDLE, Code.OK]
    finally:
        await app.stop()
