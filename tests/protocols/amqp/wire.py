"""An AMQP client that does what it is told, one frame at a time. It reads and writes with pamqp alone."""

import asyncio
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from pamqp import base, commands, frame
from pamqp.commands import Basic, Channel, Confirm, Connection

from posthouse.protocols.amqp.codec.commands import encode_command
from posthouse.testing import AsyncBroker
from tests.protocols.amqp.steps import Publish
from tests.wire.amqp import FRAME_START, Content, MessageAssembler, frame_length, message_frames

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
HEARTBEAT = b"\x08\x00\x00\x00\x00\x00\x00\xce"
CAPABILITIES = {
    "authentication_failure_close": True,
    "basic.nack": True,
    "connection.blocked": True,
    "consumer_cancel_notify": True,
    "publisher_confirms": True,
}
_SECONDS = 30.0

Answer = TypeVar("Answer", bound="base.Frame")


@dataclass(unsafe_hash=True)
class Closed(Exception):
    """The broker closed the channel or the connection instead of answering. Not frozen: context managers set
    the traceback."""

    channel: int
    code: int
    text: str
    class_id: int
    method_id: int

    @property
    def of_connection(self) -> bool:
        return self.channel == 0


class Wire:
    """`receive` gives (channel, frame) in the order of arrival; `expect` insists on what comes next."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self.assembler = MessageAssembler()
        self.server_properties: dict[str, Any] = {}
        self.tune: Any = None

    @classmethod
    def to(cls, broker: AsyncBroker) -> Self:
        address = broker.app.listeners["amqp"]
        return cls(address.host, address.port)

    async def connect(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection(self.host, self.port, limit=2**20)
        return self

    async def open(
        self,
        *,
        user: str = "guest",
        password: str = "guest",
        vhost: str = "/",
        frame_max: int = 131072,
        channel_max: int = 2047,
        heartbeat: int = 0,
        capabilities: dict[str, Any] | None = None,
        name: str | None = None,
    ) -> Self:
        await self.connect()
        self.writer.write(PROTOCOL_HEADER)
        start: Any = await self.expect(0, Connection.Start)
        self.server_properties = start.server_properties
        given: Any = {"capabilities": CAPABILITIES if capabilities is None else capabilities}
        if name is not None:
            given["connection_name"] = name
        self.send(0, Connection.StartOk(given, "PLAIN", f"\0{user}\0{password}"))
        self.tune = await self.expect(0, Connection.Tune)
        self.send(0, Connection.TuneOk(channel_max, frame_max, heartbeat))
        self.send(0, Connection.Open(vhost))
        await self.expect(0, Connection.OpenOk)
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.writer.close()

    async def close(self) -> None:
        self.send(0, Connection.Close(200, "bye", 0, 0))
        while True:
            _, got = await self.receive()
            if isinstance(got, Connection.CloseOk):
                break
        self.writer.close()

    def send(self, channel: int, method: "base.Frame") -> None:
        self.writer.write(frame.marshal(method, channel))

    def raw(self, kind: int, channel: int, payload: bytes, end: bytes = b"\xce") -> None:
        self.writer.write(FRAME_START.pack(kind, channel, len(payload)) + payload + end)

    def publish(
        self,
        channel: int,
        exchange: str,
        key: str,
        message: bytes = b"x",
        *,
        mandatory: bool = False,
        immediate: bool = False,
        part: int = 100_000,
        **properties: Any,
    ) -> None:
        method = Basic.Publish(0, exchange, key, mandatory, immediate)
        self.writer.write(message_frames(channel, method, message, Basic.Properties(**properties), part))

    async def receive(self, seconds: float = _SECONDS) -> tuple[int, Any]:
        while True:
            start = await self._frame_start(seconds)
            if start[:4] == b"AMQP":
                return 0, start + await self.reader.readexactly(1)
            rest = await self.reader.readexactly(frame_length(start) - len(start))
            got = self.assembler.take(start + rest)
            if got is not None:
                return got

    async def _frame_start(self, seconds: float) -> bytes:
        return await asyncio.wait_for(self.reader.readexactly(FRAME_START.size), seconds)

    async def expect(self, channel: int, kind: "type[Answer]") -> Answer:
        """The next frame, which must be of `kind`. Raises Closed where the broker closes instead."""
        where, got = await self.receive()
        if isinstance(got, Channel.Close | Connection.Close) and not issubclass(kind, type(got)):
            self.send(where, Channel.CloseOk() if where else Connection.CloseOk())
            raise _closed(where, got)
        assert where == channel, f"{got!r} on channel {where}"
        assert isinstance(got, kind), f"{got!r} instead of {kind}"
        return got

    async def content(self, channel: int, kind: type[Any] = Basic.Deliver) -> Content:
        """The next message."""
        where, got = await self.receive()
        if isinstance(got, Channel.Close | Connection.Close):
            raise _closed(where, got)
        assert where == channel
        assert isinstance(got, Content), f"{got!r} instead of a message"
        assert isinstance(got.method, kind), f"{got.method!r} instead of {kind}"
        return got

    async def call(self, channel: int, method: "base.Frame") -> Any:
        """Send and wait for the one answer that the method has."""
        self.send(channel, method)
        answers = [_METHODS[name] for name in method.valid_responses]
        if answers == [Basic.GetOk, Basic.GetEmpty]:
            where, got = await self.receive()
            if isinstance(got, Content | Basic.GetEmpty):
                return got
            self.send(where, Channel.CloseOk() if where else Connection.CloseOk())
            raise _closed(where, got)
        return await self.expect(channel, answers[0])

    async def refused(self, channel: int, steps: list[Any]) -> "Closed":
        """How the last of the steps is refused; all others must be done."""
        confirms = False
        for step in steps[:-1]:
            if isinstance(step, Publish):
                self.publish_step(channel, step)
                if confirms:
                    await self.expect(channel, Basic.Ack)
            elif step.valid_responses:
                await self.call(channel, step)
                confirms = confirms or isinstance(step, Confirm.Select)
            else:
                self.send(channel, step)
        if isinstance(steps[-1], Publish):
            self.publish_step(channel, steps[-1])
        else:
            self.send(channel, steps[-1])
        while True:
            where, got = await self.receive()
            if isinstance(got, Channel.Close | Connection.Close):
                self.send(where, Channel.CloseOk() if where else Connection.CloseOk())
                return _closed(where, got)
            assert not isinstance(got, base.Frame) or not steps[-1].valid_responses, f"{got!r}, not a refusal"

    def publish_step(self, channel: int, step: Publish) -> None:
        self.publish(channel, step.exchange, step.key, immediate=step.immediate, **step.properties)

    def send_unchecked(self, channel: int, method: "base.Frame") -> None:
        """Past pamqp's idea of what a name may be."""
        self.writer.write(encode_command(channel, method))

    async def channel(self, number: int = 1) -> int:
        await self.call(number, Channel.Open())
        return number

    async def nothing(self, seconds: float = 0.05) -> None:
        """Asserts that nothing comes for a while."""
        try:
            got = await self.receive(seconds)
        except TimeoutError:
            return
        raise AssertionError(f"unexpected {got!r}")

    async def ended(self) -> None:
        """Asserts that the broker closes the socket, with nothing but heartbeats before."""
        try:
            rest = await asyncio.wait_for(self.reader.read(), _SECONDS)
        except ConnectionResetError:
            return
        self.assembler.heartbeats += len(rest) // len(HEARTBEAT)
        assert rest.replace(HEARTBEAT, b"") == b""


def _closed(channel: int, got: Any) -> Closed:
    return Closed(channel, got.reply_code, got.reply_text, got.class_id, got.method_id)


_INDEX: dict[int, Any] = dict(commands.INDEX_MAPPING)
_METHODS = {each.name: each for each in _INDEX.values()}
