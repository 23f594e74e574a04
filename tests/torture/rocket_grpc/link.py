"""A connection of a gRPC client of RocketMQ: grpcio as it is, with our messages on it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self, TypeVar

import grpc
import grpc.aio

from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.protocols.rocketmq.grpc.messages.definition import Resource, Status
from posthouse.protocols.rocketmq.grpc.messages.enums import ClientType
from posthouse.protocols.rocketmq.grpc.messages.proto_message import ProtoMessage
from posthouse.protocols.rocketmq.grpc.messages.service import RPCS
from posthouse.protocols.rocketmq.grpc.messages.telemetry import Publishing, Settings, TelemetryCommand
from tests.torture.brokers import Addresses
from tests.torture.workloads import Refused

_OPTIONS: Final = (
    # A connection that is lost is seen by the client that has it, and no other one shares it.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
)
_BROKEN: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
_PATHS: Final = {(each.request, each.response): each.path for each in RPCS}

Response = TypeVar("Response", bound=ProtoMessage)


class RefusedWith(Refused):
    def __init__(self, what: str, code: int, message: str) -> None:
        super().__init__(f"{what}: {code} {message}")
        self.code = code


class NotStored(RefusedWith):
    """The broker cannot store anything now."""


def check(what: str, status: Status | None, *expected: Code) -> int:
    """The code. Raises RefusedWith."""
    if status is None:
        raise Refused(f"{what}: the response has no status")
    if status.code == Code.INTERNAL_SERVER_ERROR:
        raise NotStored(what, status.code, status.message)
    if status.code not in (expected or (Code.OK,)):
        raise RefusedWith(what, status.code, status.message)
    return status.code


@contextmanager
def _as_lost() -> Iterator[None]:
    """What grpcio says of a lost connection, as other clients do."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        if error.code() not in _BROKEN:
            raise
        raise ConnectionError(error.details()) from error


class GrpcLink:
    def __init__(self, addresses: Addresses, client: str) -> None:
        """`client` is the id that all calls name."""
        self._address = addresses.rocketmq_grpc
        self._metadata = (("x-mq-client-id", client),)

    async def __aenter__(self) -> Self:
        self._channel = grpc.aio.insecure_channel(self._address, options=_OPTIONS)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._channel.close()

    async def ask(self, request: ProtoMessage, response: type[Response]) -> Response:
        method = self._channel.unary_unary(_PATHS[type(request), response])
        with _as_lost():
            data: bytes = await method(request.encode(), metadata=self._metadata)
        return response.decode(data)

    async def stream(self, request: ProtoMessage, response: type[Response]) -> list[Response]:
        """All of the answer."""
        method = self._channel.unary_stream(_PATHS[type(request), response])
        with _as_lost():
            return [response.decode(data) async for data in method(request.encode(), metadata=self._metadata)]

    async def asked(self, topics: list[str]) -> AsyncIterator[TelemetryCommand]:
        """Commands of the broker for a producer of these topics, the settings first."""
        method = self._channel.stream_stream(_PATHS[TelemetryCommand, TelemetryCommand])
        publishing = Publishing(topics=tuple(Resource(name=each) for each in topics))
        settings = Settings(client_type=ClientType.PRODUCER, publishing=publishing)
        call = method(metadata=self._metadata)
        try:
            with _as_lost():
                await call.write(TelemetryCommand(settings=settings).encode())
                while (data := await call.read()) is not grpc.aio.EOF:
                    yield TelemetryCommand.decode(data)
                if await call.code() is not grpc.StatusCode.OK:
                    raise ConnectionError(await call.details())
        except asyncio.InvalidStateError as error:
            raise ConnectionError("the stream has ended") from error
        finally:
            call.cancel()
