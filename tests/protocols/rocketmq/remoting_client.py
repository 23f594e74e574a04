"""A client of the remoting protocol that does what it is told: requests by code, fields and body."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Self

from posthouse.model.address import Address
from posthouse.protocols.rocketmq.codec.codes import PullFlag, RequestCode
from posthouse.protocols.rocketmq.codec.commands import ONEWAY, Command, Serialization
from posthouse.protocols.rocketmq.codec.frames import FrameDecoder, encode_command
from posthouse.protocols.rocketmq.codec.heartbeats import (
    ConsumerGroup,
    Heartbeat,
    Subscription,
    encode_heartbeat,
)
from posthouse.protocols.rocketmq.codec.properties import decode_properties, encode_properties
from posthouse.protocols.rocketmq.codec.stored_messages import StoredMessage, decode_stored_messages
from posthouse.testing.listener_addresses import ListenerAddresses

DEADLINE = 30.0
"""In seconds. Only a failure reaches it."""


class RemotingClient:
    """Requests get their answers by `opaque`, in any order; `pushed` has what the broker asks for itself."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        serialization: Serialization = Serialization.JSON,
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.serialization = serialization
        self.pushed: asyncio.Queue[Command] = asyncio.Queue()
        self._opaque = 0
        self._waiting: dict[int, asyncio.Future[Command]] = {}
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def open(
        cls,
        address: str,
        serialization: Serialization = Serialization.JSON,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> Self:
        where = Address.parse(address)
        reader, writer = await asyncio.open_connection(where.host, where.port, limit=2**24, ssl=tls)
        return cls(reader, writer, serialization)

    async def close(self) -> None:
        self.writer.close()
        self._reading.cancel()
        await asyncio.wait([self._reading])

    async def ended(self) -> None:
        """Wait until the broker has closed the connection."""
        async with asyncio.timeout(DEADLINE):
            await asyncio.wait([self._reading])

    def start(
        self, code: int, fields: Mapping[str, str | int] | None = None, body: bytes = b""
    ) -> asyncio.Future[Command]:
        """Send a request without waiting; the future has its answer."""
        command = self._command(code, fields, body, 0)
        answer = self._waiting[command.opaque] = asyncio.get_running_loop().create_future()
        self.writer.write(encode_command(command))
        return answer

    async def request(
        self, code: int, fields: Mapping[str, str | int] | None = None, body: bytes = b""
    ) -> Command:
        async with asyncio.timeout(DEADLINE):
            return await self.start(code, fields, body)

    def oneway(self, code: int, fields: Mapping[str, str | int] | None = None, body: bytes = b"") -> None:
        self.writer.write(encode_command(self._command(code, fields, body, ONEWAY)))

    def respond(self, asked: Command, code: int = 0, body: bytes = b"", remark: str | None = None) -> None:
        """Answer what the broker has asked."""
        self.writer.write(encode_command(asked.answer(code, remark=remark, body=body)))

    def _command(self, code: int, fields: Mapping[str, str | int] | None, body: bytes, flag: int) -> Command:
        self._opaque += 1
        texts = {name: str(value) for name, value in (fields or {}).items()}
        return Command(
            code, self._opaque, flag, "GO", 317, None, texts, body, serialization=self.serialization
        )

    async def _read(self) -> None:
        decoder = FrameDecoder(max_frame=2**25, max_header=2**24)
        try:
            while data := await self.reader.read(2**16):
                for command in decoder.feed(data):
                    if command.is_response:
                        assert command.serialization is self.serialization
                        waiting = self._waiting.pop(command.opaque)
                        if not waiting.done():
                            waiting.set_result(command)
                    else:
                        self.pushed.put_nowait(command)
        except ConnectionError:
            pass
        finally:
            for each in self._waiting.values():
                if not each.done():
                    each.set_exception(ConnectionResetError("the broker has closed the connection"))
                    each.exception()  # a test may not want to know

    # Requests as clients make them

    def send_fields(
        self, topic: str, *, queue: int = 0, properties: Mapping[str, str] | None = None, **others: str | int
    ) -> dict[str, str | int]:
        """For SEND_MESSAGE_V2: see `send.SHORT_NAMES` for the names of others."""
        return {
            "a": "producers",
            "b": topic,
            "c": "TBW102",
            "d": 4,
            "e": queue,
            "f": 0,
            "g": 1_700_000_000_123,
            "h": 0,
            "i": encode_properties(properties or {}),
            "j": 0,
            "k": "false",
            "m": "false",
            **others,
        }

    async def send(
        self,
        topic: str,
        body: bytes,
        *,
        queue: int = 0,
        properties: Mapping[str, str] | None = None,
        **others: str | int,
    ) -> Command:
        fields = self.send_fields(topic, queue=queue, properties=properties, **others)
        return await self.request(RequestCode.SEND_MESSAGE_V2, fields, body)

    def pull_fields(
        self, topic: str, offset: int = 0, *, queue: int = 0, wait_ms: int | None = None, **others: str | int
    ) -> dict[str, str | int]:
        """With a subscription to everything, unless others say something else."""
        flags = PullFlag.SUBSCRIPTION | (0 if wait_ms is None else PullFlag.SUSPEND)
        return {
            "consumerGroup": "group",
            "topic": topic,
            "queueId": queue,
            "queueOffset": offset,
            "maxMsgNums": 32,
            "sysFlag": int(flags),
            "commitOffset": 0,
            "suspendTimeoutMillis": wait_ms or 0,
            "subscription": "*",
            "subVersion": 0,
            "expressionType": "TAG",
            **others,
        }

    async def pull(self, topic: str, offset: int = 0, **others: str | int) -> Command:
        return await self.request(RequestCode.PULL_MESSAGE, self.pull_fields(topic, offset, **others))  # type: ignore[arg-type]

    async def messages(self, topic: str, offset: int = 0, **others: str | int) -> list[StoredMessage]:
        """Those of one pull; it must find some."""
        answer = await self.pull(topic, offset, **others)
        assert answer.code == 0, answer.remark
        return decode_stored_messages(answer.body)

    async def beat(
        self, client: str = "client", *groups: ConsumerGroup, producers: Sequence[str] = ()
    ) -> Command:
        heartbeat = Heartbeat(client=client, consumer_groups=groups, producer_groups=tuple(producers))
        return await self.request(RequestCode.HEART_BEAT, None, encode_heartbeat(heartbeat))

    async def offset(self, code: int, topic: str, queue: int = 0, **others: str | int) -> int:
        answer = await self.request(code, {"topic": topic, "queueId": queue, **others})
        assert answer.code == 0, answer.remark
        return int(answer.fields["offset"])


def own_properties(message: StoredMessage) -> dict[str, str]:
    """Without what the broker adds to each message that is pulled."""
    properties = decode_properties(message.properties)
    assert properties.pop("MSG_REGION") == "DefaultRegion"
    return properties


def group(name: str, **subscriptions: str) -> ConsumerGroup:
    """Subscriptions are expressions of tags by topic."""
    return ConsumerGroup(
        name=name,
        subscriptions=tuple(
            Subscription(topic=topic, expression=expression) for topic, expression in subscriptions.items()
        ),
    )


@asynccontextmanager
async def client_of(
    broker: ListenerAddresses, serialization: Serialization = Serialization.JSON
) -> AsyncIterator[RemotingClient]:
    client = await RemotingClient.open(broker.address("rocketmq"), serialization)
    try:
        yield client
    finally:
        await client.close()
