"""One call with its messages decoded. Errors are answered in the status of a response."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, Generic, TypeVar

from posthouse.broker.access.guard import Guard
from posthouse.broker.access.operations import Kind, Operation
from posthouse.model.errors import AccessRefused
from posthouse.model.ids import GroupId, MemberId
from posthouse.model.topics import Topic
from posthouse.protocols.grpc.call import Call
from posthouse.protocols.grpc.calls import StreamingCall, UnaryCall
from posthouse.protocols.grpc.status import GrpcError
from posthouse.protocols.grpc.status import Status as GrpcStatus
from posthouse.protocols.rocketmq.charges import Charges
from posthouse.protocols.rocketmq.grpc.clients import Client
from posthouse.protocols.rocketmq.grpc.converting import name_of
from posthouse.protocols.rocketmq.grpc.groups import group_id
from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.protocols.rocketmq.grpc.messages.definition import Resource
from posthouse.protocols.rocketmq.grpc.messages.errors import MalformedMessage
from posthouse.protocols.rocketmq.grpc.messages.proto_message import ProtoMessage
from posthouse.protocols.rocketmq.grpc.server import MessagingServer
from posthouse.protocols.rocketmq.grpc.session import MessagingSession
from posthouse.protocols.rocketmq.grpc.statuses import Refused, status_of
from posthouse.protocols.rocketmq.names import topic_name
from posthouse.protocols.stopwatch import Timed

_CLIENT_ID: Final = "x-mq-client-id"
_LONGEST_CLIENT_ID: Final = 512


RequestT = TypeVar("RequestT", bound=ProtoMessage)
ResponseT = TypeVar("ResponseT", bound=ProtoMessage)


class Rpc:
    """What every handler is given."""

    __slots__ = ("call", "client", "guard", "server", "session")

    def __init__(self, call: Call) -> None:
        """Raises Refused for a client without an id, LoginFailed and BadRequest."""
        session = session_of(call)
        self.call = call
        self.session = session
        self.server: MessagingServer = session.server
        session.check_login(call.metadata)
        self.guard: Guard = session.guard
        session.introduce(call.metadata)
        id = call.metadata.get(_CLIENT_ID)
        if not id or len(id) > _LONGEST_CLIENT_ID:
            raise Refused(Code.CLIENT_ID_REQUIRED, f"the call has no header {_CLIENT_ID}, or a very long one")
        self.client: Client = self.server.clients.heard(MemberId(id), session, self.guard.principal.name)
        session.proven(id)

    def check_topic(self, name: str, operation: Operation) -> None:
        """`name` is the topic's in RocketMQ. Raises InvalidTopicName and AccessRefused."""
        if not self.guard.allows(operation, Kind.TOPIC, topic_name(name)):
            raise AccessRefused(f"no permission to {operation} topic {name!r}")

    def topic(self, resource: Resource | None, operation: Operation) -> Topic:
        """Raises InvalidTopicName, AccessRefused before it is known whether there is a topic, and
        UnknownTopic."""
        name = name_of(resource)
        self.check_topic(name, operation)
        return self.server.topics.get(name)

    def group(self, resource: Resource | None) -> GroupId:
        """Raises InvalidGroupId and AccessRefused."""
        group = group_id("" if resource is None else name_of(resource))
        if not self.guard.allows(Operation.READ, Kind.GROUP, group):
            raise AccessRefused(f"no permission to consume in the group {group!r}")
        return group


class Answer(Generic[ResponseT]):
    """Of a unary call: once, at any time."""

    __slots__ = ("_call", "_is_passed_on", "_passed_on", "_response", "_session")

    def __init__(self, call: UnaryCall, response: type[ResponseT]) -> None:
        self._call = call
        self._response = response
        self._session = session_of(call)
        self._is_passed_on = False
        self._passed_on: asyncio.Future[None] | None = None

    def give(self, response: ResponseT) -> None:
        self._answer(response.encode())

    def fail(self, error: BaseException) -> None:
        self._call.metrics.errors += 1
        self._answer(_failure(self._response, error))

    def _answer(self, data: bytes) -> None:
        change = self._session.guard.last_change
        if change:  # what was done is in the audit log before it is answered
            audit = self._session.server.broker.access.audit
            audit.when_written(change, partial(self._pass_on, data))
        else:
            self._pass_on(data)

    def _pass_on(self, data: bytes) -> None:
        self._call.answer(data)
        self._is_passed_on = True
        if self._passed_on is not None and not self._passed_on.done():
            self._passed_on.set_result(None)

    async def passed_on(self) -> None:
        """Wait until it has been given to the call."""
        if not self._is_passed_on:
            self._passed_on = asyncio.get_running_loop().create_future()
            await self._passed_on


def session_of(call: Call) -> MessagingSession:
    session = call.connection.session
    assert isinstance(session, MessagingSession)
    return session


def _failure(response: type[ProtoMessage], error: BaseException) -> bytes:
    """Every response has a status."""
    make: Callable[..., ProtoMessage] = response
    return make(status=status_of(error)).encode()


UnaryHandler = Callable[[Rpc, RequestT, Answer[ResponseT]], Coroutine[Any, Any, None] | None]


def unary(
    request_type: type[RequestT],
    response_type: type[ResponseT],
    handler: UnaryHandler[RequestT, ResponseT],
    *,
    is_writing: bool = False,
) -> Callable[[UnaryCall, bytes], Coroutine[Any, Any, None] | None]:
    """The handler answers at once, later, or in the coroutine that it returns. `is_writing`: the bytes of its
    requests are charged."""

    def handle(call: UnaryCall, data: bytes) -> Coroutine[Any, Any, None] | None:
        answer = Answer(call, response_type)
        charges = session_of(call).charges
        try:
            rpc = Rpc(call)  # before anything is decoded, or charged: the call may be nobody's
            if is_writing and not charges.quotas.is_empty:
                charges.written(len(data))
            waiting = charges.timed(lambda: handler(rpc, decoded(request_type, data), answer))
        except GrpcError:
            raise
        except Exception as error:  # noqa: BLE001 - told apart in `statuses`
            answer.fail(error)
            return None
        return None if waiting is None else _timed(_finish(waiting, answer), charges)

    return handle


def _timed(working: Coroutine[Any, Any, None], charges: Charges) -> Coroutine[Any, Any, None]:
    return working if charges.quotas.is_empty else Timed(working, charges.stopwatch, charges.worked)


async def _finish(waiting: Coroutine[Any, Any, None], answer: Answer[ResponseT]) -> None:
    try:
        await waiting
    except Exception as error:  # noqa: BLE001 - told apart in `statuses`
        answer.fail(error)
    await answer.passed_on()  # a call whose coroutine has returned counts as never answered


StreamHandler = Callable[[Rpc, StreamingCall, RequestT], Coroutine[Any, Any, None]]


def streaming(
    request_type: type[RequestT], response_type: type[ResponseT], handler: StreamHandler[RequestT]
) -> Callable[[StreamingCall, bytes], Coroutine[Any, Any, None]]:
    """A failure is one status on the stream, which then ends well."""

    def handle(call: StreamingCall, data: bytes) -> Coroutine[Any, Any, None]:
        charges = session_of(call).charges
        try:
            rpc = Rpc(call)
        except Exception as error:  # noqa: BLE001 - told apart in `statuses`
            return fail(call, error)
        request = charges.timed(lambda: decoded(request_type, data))
        return _timed(stream(rpc, call, request), charges)

    async def stream(rpc: Rpc, call: StreamingCall, request: RequestT) -> None:
        try:
            await handler(rpc, call, request)
        except Exception as error:  # noqa: BLE001 - told apart in `statuses`
            await fail(call, error)

    async def fail(call: StreamingCall, error: BaseException) -> None:
        call.metrics.errors += 1
        await call.send(_failure(response_type, error))

    return handle


def decoded(kind: type[RequestT], data: bytes) -> RequestT:
    """Raises GrpcError."""
    try:
        return kind.decode(data)
    except MalformedMessage as error:
        raise GrpcError(GrpcStatus.INVALID_ARGUMENT, str(error)) from error
