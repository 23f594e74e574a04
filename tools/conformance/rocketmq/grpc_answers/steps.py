"""A step: a request, and its answer without what differs from run to run."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Set
from contextlib import asynccontextmanager
from enum import Enum
from typing import Any

import grpc.aio
from msgspec.structs import fields

from posthouse.protocols.rocketmq.grpc.messages import service
from posthouse.protocols.rocketmq.grpc.messages.definition import Broker, Message, Status
from posthouse.protocols.rocketmq.grpc.messages.proto_message import ProtoMessage
from posthouse.protocols.rocketmq.grpc.messages.telemetry import TelemetryCommand
from tests.protocols.rocketmq.grpc.messaging_client import MessagingClient

SECONDS = 30.0
"""For an answer."""
OPAQUE = frozenset(
    {
        "transaction_id",
        "recall_handle",
        "receipt_handle",
        "delivery_timestamp",
        "born_timestamp",
        "store_timestamp",
        "born_host",
        "store_host",
        "body_digest",
    }
)
"""Of these only the presence is compared: they have addresses, times and numbers of the broker's own."""
IGNORED = frozenset(
    {
        "access_point",
        "invisible_duration",
        "lite_subscription_quota",
        "max_lite_topic_size",
        "trace_context",
    }
)
"""These are not compared; docs/rocketmq.md says why."""
_RPCS = {each.request: each for each in service.RPCS}
_SAID = (
    ("x-mq-language", "JAVA"),
    ("x-mq-client-version", "5.2.0"),
    ("x-mq-protocol", "v2"),
)


@asynccontextmanager
async def connected(endpoints: str, id: str | None) -> AsyncIterator[MessagingClient]:
    async with MessagingClient(endpoints, id) as client:
        client.metadata = (*client.metadata, *_SAID)
        yield client


class Steps:
    """Prints them: name, code, fields, nothing, and what the answer says to people, separated by tabs."""

    def __init__(self, endpoints: str, client: MessagingClient) -> None:
        self.endpoints = endpoints
        self.client = client
        """Who asks, where nobody else is named."""

    async def call(
        self, name: str, request: ProtoMessage, client: MessagingClient | None = None, *but: str
    ) -> Any:
        """The response, or None for a failure of gRPC. Fields with the names `but` are not compared."""
        rpc = _RPCS[type(request)]
        try:
            data = await (client or self.client).call_bytes(rpc.name, request.encode())
        except grpc.aio.AioRpcError as error:
            _print(name, f"gRPC {error.code().name}", {}, error.details() or "")
            return None
        response: Any = rpc.response.decode(data)
        status = response.status or Status()
        _print(name, str(int(status.code)), _fields(response, but), status.message)
        return response

    async def receive(
        self,
        name: str,
        request: ProtoMessage,
        client: MessagingClient | None = None,
        seconds: float = SECONDS,
    ) -> list[Message]:
        """The code is that of the first response; messages come in any order."""
        rpc = _RPCS[type(request)]
        try:
            found: list[Any] = [
                rpc.response.decode(data) async for data in (client or self.client).stream(request, seconds)
            ]
        except grpc.aio.AioRpcError as error:
            _print(name, f"gRPC {error.code().name}", {}, error.details() or "")
            return []
        statuses = [each.status for each in found if each.status is not None]
        messages = sorted(
            (each.message for each in found if each.message is not None),
            key=lambda each: (each.system_properties.queue_offset or 0, each.body),
        )
        shown = {
            "statuses": len(statuses),
            "messages": [_shown(each) for each in messages],
            "next_offset": [
                each.next_offset for each in found if getattr(each, "next_offset", None) is not None
            ],
        }
        first = statuses[0] if statuses else Status()
        _print(
            name, str(int(first.code)), {key: value for key, value in shown.items() if value}, first.message
        )
        return messages

    async def tell(
        self, name: str, command: ProtoMessage | bytes, client: MessagingClient, *but: str
    ) -> None:
        """The first command on a stream of telemetry, which then ends, and what is answered."""
        async with client.telemetry() as stream:
            try:
                await stream.write(command if isinstance(command, bytes) else command.encode())
                answer = await stream.command()
            except AssertionError:
                _print(name, f"gRPC {(await stream.end()).name}", {}, "the stream has ended")
            except grpc.aio.AioRpcError as error:
                _print(name, f"gRPC {error.code().name}", {}, error.details() or "")
            except TimeoutError:
                _print(name, "no answer", {}, "")
            else:
                status = answer.status or Status()
                _print(name, str(int(status.code)), _fields(answer, but), status.message)

    @asynccontextmanager
    async def member(self, id: str, command: TelemetryCommand) -> AsyncIterator[MessagingClient]:
        """A client with a stream of telemetry, which has had its settings."""
        async with connected(self.endpoints, id) as client, client.telemetry() as stream:
            await stream.write(command.encode())
            answer = await stream.command()
            assert answer.settings is not None, answer
            yield client


async def until(seconds: float) -> None:
    """Time that leases need to end."""
    await asyncio.sleep(seconds)


def _print(name: str, code: str, shown: Mapping[str, Any], remark: str) -> None:
    said = "{" + ", ".join(f"{key}={value}" for key, value in sorted(shown.items())) + "}"
    print(name, code, said, "", " ".join(remark.split()), sep="\t", flush=True)


def _fields(response: ProtoMessage, but: Collection[str]) -> dict[str, Any]:
    """But for the status, whose code has a place of its own."""
    shown: dict[str, Any] = _shown(response, IGNORED.union(but))
    shown.pop("status", None)
    return shown


def _shown(value: Any, ignored: Set[str] = IGNORED) -> Any:
    """What is absent is a zero: neither is shown."""
    if isinstance(value, Status):
        return int(value.code)
    if isinstance(value, ProtoMessage):
        left_out = ignored | {"name"} if isinstance(value, Broker) else ignored
        said = {each.name: getattr(value, each.name) for each in fields(value) if each.name not in left_out}
        return {name: "…" if name in OPAQUE else _shown(each, ignored) for name, each in said.items() if each}
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Mapping):
        return dict(sorted(value.items()))
    if isinstance(value, tuple):
        return [_shown(each, ignored) for each in value]
    if isinstance(value, bytes):
        return value.decode(errors="replace") if len(value) < 100 else f"{len(value)} bytes"
    return value
