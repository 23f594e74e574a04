"""HTTP servers that receive webhooks: real sockets, and answers that a test chooses."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import h11

from posthouse.testing import AsyncBroker

PATIENCE = 60.0
"""Seconds that only a failure takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    at: float
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b"ok"
    endless: bool = False
    """The body never ends."""
    hang_up: bool = False
    """Close the connection instead of answering."""
    before: Callable[[], Awaitable[Any]] | None = None
    """Awaited first: a server that is slow, or hangs."""


OK = Reply()
Answering = Callable[[Received], Reply]


@dataclass(slots=True)
class Receiver:
    answering: Answering
    port: int = 0
    has_tls: bool = False
    received: list[Received] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    connections: int = 0
    _arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def bodies(self) -> list[bytes]:
        return [each.body for each in self.received]

    async def until(self, is_enough: Callable[["Receiver"], bool]) -> None:
        async with asyncio.timeout(PATIENCE), self._arrived:
            await self._arrived.wait_for(lambda: is_enough(self))

    async def got(self, count: int) -> list[Received]:
        """The requests, once there are so many."""
        await self.until(lambda _: len(self.received) >= count)
        return self.received

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        try:
            await self._serve(reader, writer, number)
        except (OSError, h11.ProtocolError, asyncio.CancelledError):
            pass  # the client, or the test, has ended it
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        protocol = h11.Connection(h11.SERVER)
        head: h11.Request | None = None
        body = b""
        while True:
            event = protocol.next_event()
            if event is h11.NEED_DATA:
                protocol.receive_data(await reader.read(65536))
            elif isinstance(event, h11.Request):
                head, body = event, b""
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                assert head is not None
                received = Received(
                    at=asyncio.get_running_loop().time(),
                    target=head.target.decode(),
                    headers={name.decode(): value.decode() for name, value in head.headers},
                    body=body,
                    connection=number,
                )
                if not await self._answer(protocol, writer, received):
                    return
                protocol.start_next_cycle()
            else:
                return

    async def _answer(
        self, protocol: h11.Connection, writer: asyncio.StreamWriter, received: Received
    ) -> bool:
        reply = self.answering(received)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            async with self._arrived:
                self.received.append(received)
                self._arrived.notify_all()
            if reply.before is not None:
                await reply.before()
        finally:
            self.in_flight -= 1
        if reply.hang_up:
            return False
        size = [] if reply.endless else [("content-length", str(len(reply.body)))]
        response = h11.Response(status_code=reply.status, headers=[*reply.headers, *size])
        writer.write(protocol.send(response) or b"")
        writer.write(protocol.send(h11.Data(data=reply.body)) or b"")
        while reply.endless:
            writer.write(protocol.send(h11.Data(data=bytes(4096))) or b"")
            await writer.drain()
        writer.write(protocol.send(h11.EndOfMessage()) or b"")
        await writer.drain()
        return True


@asynccontextmanager
async def receiver(
    answering: Answering = lambda _: OK, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Receiver]:
    made = Receiver(answering, has_tls=tls is not None)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()


def pushing_broker(**settings: Any) -> AsyncBroker:
    """It may push to this machine."""
    settings.setdefault("webhook_allow", ("127.0.0.0/8",))
    return AsyncBroker(**settings)


def numbers(received: list[Received]) -> list[int]:
    """Of messages that are JSON numbers."""
    return [int(json.loads(each.body)) for each in received]
