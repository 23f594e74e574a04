"""Consumers that end while they wait for messages, and producers that may not see what they are asked of."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import grpc.aio
import pytest

from posthouse.broker.half_messages.half_message import HalfMessage
from posthouse.broker.schedule.entry import Scheduled
from posthouse.model.ids import GroupId
from posthouse.protocols.rocketmq.grpc.groups import group_id
from posthouse.protocols.rocketmq.grpc.handlers.membership import TelemetryStream
from posthouse.protocols.rocketmq.grpc.messages import service
from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.protocols.rocketmq.grpc.messages.definition import (
    Message,
    MessageQueue,
    Resource,
    SystemProperties,
)
from posthouse.protocols.rocketmq.grpc.messages.proto_message import ProtoMessage
from posthouse.protocols.rocketmq.grpc.messages.well_known import Duration
from posthouse.settings import Address
from posthouse.testing import AsyncBroker

TOPIC, GROUP = Resource(name="orders"), Resource(name="billing")
_PATHS = {each.name: each.path for each in service.RPCS}
_SECONDS = 30


@pytest.fixture
async def broker() -> AsyncIterator[AsyncBroker]:
    async with AsyncBroker(rocketmq_grpc=Address("127.0.0.1", 0)) as running:
        yield running


class Client:
    def __init__(self, broker: AsyncBroker, id: str) -> None:
        options = [("grpc.http2.bdp_probe", 0), ("grpc.use_local_subchannel_pool", 1)]
        self.channel = grpc.aio.insecure_channel(broker.address("rocketmq_grpc"), options=options)
        self._named = {"metadata": (("x-mq-client-id", id),), "timeout": _SECONDS, "wait_for_ready": True}

    async def call(self, name: str, request: ProtoMessage) -> bytes:
        answer: bytes = await self.channel.unary_unary(_PATHS[name])(request.encode(), **self._named)
        return answer

    def start_receiving(self) -> Any:
        request = service.ReceiveMessageRequest(
            group=GROUP, message_queue=MessageQueue(topic=TOPIC, id=-1), auto_renew=True
        )
        return self.channel.unary_stream(_PATHS["ReceiveMessage"])(request.encode(), **self._named)

    async def receive(self) -> list[service.ReceiveMessageResponse]:
        request = service.ReceiveMessageRequest(
            group=GROUP,
            message_queue=MessageQueue(topic=TOPIC, id=-1),
            auto_renew=True,
            long_polling_timeout=Duration.from_ms(20_000),
        )
        calls = self.channel.unary_stream(_PATHS["ReceiveMessage"])(request.encode(), **self._named)
        return [service.ReceiveMessageResponse.decode(data) async for data in calls]

    async def send(self, body: bytes = b"v") -> None:
        message = Message(topic=TOPIC, system_properties=SystemProperties(message_id="id"), body=body)
        answer = await self.call("SendMessage", service.SendMessageRequest(messages=(message,)))
        status = service.SendMessageResponse.decode(answer).status
        assert status is not None and status.code == Code.OK


async def test_who_ends_while_it_waits_gets_nothing_any_more(broker: AsyncBroker) -> None:
    ending, other = Client(broker, "ending"), Client(broker, "other")
    await ending.call("QueryRoute", service.QueryRouteRequest(topic=TOPIC))
    waiting = asyncio.ensure_future(ending.receive())
    fetching = broker.app.broker.subscriptions._fetching
    async with asyncio.timeout(_SECONDS):
        while not fetching._waiting.get(GroupId(group_id("billing"))):
            await asyncio.sleep(0.001)
    await ending.call("NotifyClientTermination", service.NotifyClientTerminationRequest(group=GROUP))
    [only] = await waiting
    assert only.status is not None and only.status.code == Code.MESSAGE_NOT_FOUND
    await other.send()
    found = [each.message.body for each in await other.receive() if each.message is not None]
    assert found == [b"v"]
    await ending.channel.close()
    await other.channel.close()


async def test_messages_that_a_client_does_not_read_are_counted(broker: AsyncBroker) -> None:
    """In the memory of its connection, which has a budget."""
    client = Client(broker, "slow")
    await client.call("QueryRoute", service.QueryRouteRequest(topic=TOPIC))
    for _ in range(4):
        await client.send(bytes(240_000))
    call = client.start_receiving()
    [listener] = [each.listener for each in broker.app._served if each.name == "rocketmq_grpc"]
    async with asyncio.timeout(_SECONDS):
        while sum(each.info.held_bytes for each in listener) < 900_000:
            for each in listener:
                each.tick()
            await asyncio.sleep(0.01)
    call.cancel()
    async with asyncio.timeout(_SECONDS):
        while sum(each.info.held_bytes for each in listener) > 100_000:
            for each in listener:
                each.tick()
            await asyncio.sleep(0.01)
    await client.channel.close()


@pytest.mark.parametrize("may_write", [False, True])
def test_half_messages_are_shown_to_those_who_may_write_to_their_topic(may_write: bool) -> None:
    pushed: list[bytes] = []

    def push(data: bytes) -> bool:
        pushed.append(data)
        return True

    guard = SimpleNamespace(may=lambda operation, kind, name: may_write and name == "orders")
    call: Any = SimpleNamespace(push=push)
    session: Any = SimpleNamespace(guard=guard, store_host="127.0.0.1:1")
    half = HalfMessage(
        group="%TOPIC%orders",
        content=Scheduled(due_ms=0, namespace="/", exchange="orders", key=b"", value=b"secret", partition=0),
        first_check_s=6,
    )
    stream = TelemetryStream(call, session)
    stream.is_answered = True
    assert stream.ask(1, half) is may_write
    assert [b"secret" in each for each in pushed] == [True] * may_write
