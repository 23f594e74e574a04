"""A client of the gRPC protocol that does what it is told: grpcio's channel, and our own messages."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc
import grpc.aio

from posthouse.protocols.rocketmq.grpc.messages import service
from posthouse.protocols.rocketmq.grpc.messages.definition import (
    FilterExpression,
    Message,
    MessageQueue,
    Resource,
    SubscriptionEntry,
    SystemProperties,
)
from posthouse.protocols.rocketmq.grpc.messages.enums import (
    ClientType,
    FilterType,
    MessageType,
    TransactionResolution,
)
from posthouse.protocols.rocketmq.grpc.messages.proto_message import ProtoMessage
from posthouse.protocols.rocketmq.grpc.messages.service import (
    AckMessageEntry,
    AckMessageRequest,
    AckMessageResponse,
    ChangeInvisibleDurationRequest,
    ChangeInvisibleDurationResponse,
    EndTransactionRequest,
    EndTransactionResponse,
    ForwardMessageToDeadLetterQueueRequest,
    ForwardMessageToDeadLetterQueueResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    NotifyClientTerminationRequest,
    NotifyClientTerminationResponse,
    ReceiveMessageRequest,
    ReceiveMessageResponse,
    SendMessageRequest,
    SendMessageResponse,
)
from posthouse.protocols.rocketmq.grpc.messages.telemetry import (
    Publishing,
    Settings,
    Subscription,
    TelemetryCommand,
)
from posthouse.protocols.rocketmq.grpc.messages.well_known import Duration

DEADLINE = 30.0
"""In seconds. Only a failure reaches it."""
CLIENT_ID = "x-mq-client-id"
OK = 20000
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),  # a connection for each client
    ("grpc.http2.bdp_probe", 0),  # who does not read is not sent much
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
)
_RPCS = {each.name: each for each in service.RPCS}
_numbers = count()

ResponseT = TypeVar("ResponseT", bound=ProtoMessage)


class Telemetry:
    """The stream of one client."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def settings(self, settings: Settings) -> Settings:
        """What the broker answers."""
        await self._stream.write(TelemetryCommand(settings=settings).encode())
        answer = await self.command()
        assert answer.status is not None and answer.status.code == OK
        assert answer.settings is not None
        return answer.settings

    async def write(self, data: bytes) -> None:
        await self._stream.write(data)

    async def command(self) -> TelemetryCommand:
        async with asyncio.timeout(DEADLINE):
            data = await self._stream.read()
        assert data is not grpc.aio.EOF, "the stream has ended"
        return TelemetryCommand.decode(data)

    async def end(self) -> grpc.StatusCode:
        """How the broker ends it, or has."""
        async with asyncio.timeout(DEADLINE):
            code: grpc.StatusCode = await self._stream.code()
            return code

    async def close(self) -> None:
        await self._stream.done_writing()
        assert await self.end() is grpc.StatusCode.OK


class MessagingClient:
    def __init__(
        self,
        address: str,
        id: str | None = "client",
        *,
        namespace: str = "",
        roots: bytes | None = None,
    ) -> None:
        """Without an id it does not say who it is. With `roots`, certificates, it uses TLS."""
        if roots is None:
            self.channel = grpc.aio.insecure_channel(address, options=_OPTIONS)
        else:
            credentials = grpc.ssl_channel_credentials(roots)
            self.channel = grpc.aio.secure_channel(address, credentials, options=_OPTIONS)
        self.namespace = namespace
        self.metadata: tuple[tuple[str, str], ...] = () if id is None else ((CLIENT_ID, id),)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.channel.close()

    # Calls of any kind

    async def call_bytes(self, name: str, data: bytes) -> bytes:
        call = self.channel.unary_unary(_RPCS[name].path)
        answer: bytes = await call(data, timeout=DEADLINE, metadata=self.metadata, wait_for_ready=True)
        return answer

    async def call(self, request: ProtoMessage, response: type[ResponseT]) -> ResponseT:
        """The name of the call is that of its messages."""
        name = type(request).__name__.removesuffix("Request")
        assert _RPCS[name].response is response
        return response.decode(await self.call_bytes(name, request.encode()))

    async def code(self, request: ProtoMessage) -> int:
        """Only the status of the response."""
        name = type(request).__name__.removesuffix("Request")
        response: Any = _RPCS[name].response.decode(await self.call_bytes(name, request.encode()))
        return int(response.status.code)

    def stream(self, request: ProtoMessage, timeout: float | None = None) -> Any:
        """The call, whose messages are bytes."""
        name = type(request).__name__.removesuffix("Request")
        begin = self.channel.unary_stream(_RPCS[name].path)
        return begin(request.encode(), timeout=timeout, metadata=self.metadata, wait_for_ready=True)

    async def responses(
        self, request: ProtoMessage, response: type[ResponseT], timeout: float | None = None
    ) -> list[ResponseT]:
        async with asyncio.timeout(DEADLINE):
            return [response.decode(data) async for data in self.stream(request, timeout)]

    @asynccontextmanager
    async def telemetry(self) -> AsyncIterator[Telemetry]:
        stream = self.channel.stream_stream(_RPCS["Telemetry"].path)(
            metadata=self.metadata, wait_for_ready=True
        )
        try:
            yield Telemetry(stream)
        finally:
            stream.cancel()

    # Calls as clients make them

    def resource(self, name: str) -> Resource:
        return Resource(resource_namespace=self.namespace, name=name)

    def message(
        self, topic: str, body: bytes, properties: Mapping[str, str] | None = None, **system: Any
    ) -> Message:
        """`system` are system properties."""
        known = {"message_id": f"01{next(_numbers):032X}", "message_type": MessageType.NORMAL}
        return Message(
            topic=self.resource(topic),
            user_properties=properties or {},
            system_properties=SystemProperties(**{**known, **system}),
            body=body,
        )

    async def send_all(self, *messages: Message) -> SendMessageResponse:
        return await self.call(SendMessageRequest(messages=messages), SendMessageResponse)

    async def send(
        self, topic: str, *bodies: bytes, properties: Mapping[str, str] | None = None, **system: Any
    ) -> SendMessageResponse:
        """In one request. All of them must be stored."""
        answer = await self.send_all(
            *(self.message(topic, body, properties, **system) for body in bodies or (b"v",))
        )
        assert answer.status is not None and answer.status.code == OK, answer
        return answer

    async def refused(self, topic: str, body: bytes = b"v", **others: Any) -> int:
        """The code of a send of one message."""
        return await self.code(SendMessageRequest(messages=(self.message(topic, body, **others),)))

    def receive_request(
        self,
        topic: str,
        group: str = "group",
        *,
        expression: str | None = None,
        sql: str | None = None,
        queue: int = -1,
        most: int = 32,
        wait: float = 0.0,
        invisible: float | None = 30.0,
        attempt: str | None = None,
    ) -> ReceiveMessageRequest:
        """Without `invisible`, as push consumers ask."""
        selected = None
        if sql is not None:
            selected = FilterExpression(type=FilterType.SQL, expression=sql)
        elif expression is not None:
            selected = FilterExpression(type=FilterType.TAG, expression=expression)
        return ReceiveMessageRequest(
            group=self.resource(group),
            message_queue=MessageQueue(topic=self.resource(topic), id=queue),
            filter_expression=selected,
            batch_size=most,
            invisible_duration=None if invisible is None else Duration.from_ms(int(invisible * 1000)),
            auto_renew=invisible is None,
            long_polling_timeout=Duration.from_ms(int(wait * 1000)),
            attempt_id=attempt,
        )

    async def receive(self, topic: str, group: str = "group", **others: Any) -> list[Message]:
        """What is there now, or comes within `wait` seconds."""
        found = await self.responses(
            self.receive_request(topic, group, **others), ReceiveMessageResponse, timeout=DEADLINE
        )
        return messages_in(found)

    async def receive_code(self, topic: str, group: str = "group", **others: Any) -> int:
        """Of a call that must not have messages."""
        [only] = await self.responses(
            self.receive_request(topic, group, **others), ReceiveMessageResponse, timeout=DEADLINE
        )
        assert only.status is not None
        return int(only.status.code)

    async def acknowledge(
        self, topic: str, receipts: Sequence[Message | str], group: str = "group"
    ) -> AckMessageResponse:
        entries = tuple(AckMessageEntry(message_id="id", receipt_handle=receipt(each)) for each in receipts)
        request = AckMessageRequest(group=self.resource(group), topic=self.resource(topic), entries=entries)
        return await self.call(request, AckMessageResponse)

    async def ack(self, topic: str, *receipts: Message | str, group: str = "group") -> int:
        answer = await self.acknowledge(topic, receipts, group)
        assert answer.status is not None
        return int(answer.status.code)

    async def change(
        self, topic: str, held: Message | str, seconds: float, group: str = "group"
    ) -> ChangeInvisibleDurationResponse:
        request = ChangeInvisibleDurationRequest(
            group=self.resource(group),
            topic=self.resource(topic),
            receipt_handle=receipt(held),
            invisible_duration=Duration.from_ms(int(seconds * 1000)),
            message_id="id",
        )
        return await self.call(request, ChangeInvisibleDurationResponse)

    async def changed(self, topic: str, held: Message | str, seconds: float, group: str = "group") -> str:
        """The new receipt."""
        answer = await self.change(topic, held, seconds, group)
        assert answer.status is not None and answer.status.code == OK, answer
        return answer.receipt_handle

    async def forward(self, topic: str, held: Message | str, group: str = "group") -> int:
        request = ForwardMessageToDeadLetterQueueRequest(
            group=self.resource(group),
            topic=self.resource(topic),
            receipt_handle=receipt(held),
            message_id="id",
        )
        answer = await self.call(request, ForwardMessageToDeadLetterQueueResponse)
        assert answer.status is not None
        return int(answer.status.code)

    async def end_transaction(self, topic: str, transaction: str, resolution: TransactionResolution) -> int:
        request = EndTransactionRequest(
            topic=self.resource(topic),
            message_id="id",
            transaction_id=transaction,
            resolution=resolution,
        )
        answer = await self.call(request, EndTransactionResponse)
        assert answer.status is not None
        return int(answer.status.code)

    async def beat(
        self, group: str | None = None, kind: ClientType = ClientType.PUSH_CONSUMER
    ) -> HeartbeatResponse:
        named = None if group is None else self.resource(group)
        return await self.call(HeartbeatRequest(group=named, client_type=kind), HeartbeatResponse)

    async def terminate(self, group: str | None = None) -> NotifyClientTerminationResponse:
        named = None if group is None else self.resource(group)
        return await self.call(NotifyClientTerminationRequest(group=named), NotifyClientTerminationResponse)

    def subscription(self, group: str = "group", **expressions: str) -> Settings:
        """Of a push consumer: tags by topic."""
        entries = tuple(
            SubscriptionEntry(
                topic=self.resource(topic),
                expression=FilterExpression(type=FilterType.TAG, expression=expression),
            )
            for topic, expression in expressions.items()
        )
        return Settings(
            client_type=ClientType.PUSH_CONSUMER,
            subscription=Subscription(group=self.resource(group), subscriptions=entries),
        )

    def publishing(self, *topics: str) -> Settings:
        return Settings(
            client_type=ClientType.PRODUCER,
            publishing=Publishing(topics=tuple(map(self.resource, topics))),
        )


def messages_in(responses: Sequence[ReceiveMessageResponse]) -> list[Message]:
    """Checks how the stream is made: one status first, and if that is good, messages and the time."""
    first, *others = responses
    assert first.status is not None
    if first.status.code != OK:
        assert not others
        assert first.status.code == 40401, first.status
        return []
    assert others[-1].delivery_timestamp is not None
    messages = [each.message for each in others[:-1] if each.message is not None]
    assert 0 < len(messages) == len(others) - 1
    return messages


def system(message: Message) -> SystemProperties:
    assert message.system_properties is not None
    return message.system_properties


def receipt(held: Message | str) -> str:
    if isinstance(held, str):
        return held
    handle = system(held).receipt_handle
    assert handle is not None
    return handle


def attempt(message: Message) -> int:
    found = system(message).delivery_attempt
    assert found is not None
    return found


def bodies(messages: Sequence[Message]) -> list[bytes]:
    return sorted(each.body for each in messages)
