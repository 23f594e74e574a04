"""A connection of a RocketMQ client, one request at a time."""

import asyncio
from types import TracebackType
from typing import Final, Self

from posthouse.protocols.rocketmq.codec.codes import (
    PRODUCER_GROUP,
    TRANSACTION_PREPARED,
    RequestCode,
    ResponseCode,
)
from posthouse.protocols.rocketmq.codec.commands import Command
from posthouse.protocols.rocketmq.codec.frames import FrameDecoder, encode_command
from posthouse.protocols.rocketmq.codec.heartbeats import Heartbeat, encode_heartbeat
from posthouse.protocols.rocketmq.codec.properties import encode_properties
from tests.checker.history import Partition
from tests.torture.brokers import Addresses
from tests.torture.workloads import Refused

PRODUCERS: Final = "producers"
READERS: Final = "readers"
COMMIT: Final = 8
ROLL_BACK: Final = 12
_READ_BYTES: Final = 65536
_NO_SUSPENSION_WITH_SUBSCRIPTION: Final = 4
_PULLED: Final = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)
_LATER: Final = frozenset({ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_BUSY})
"""Codes that producers try again after."""


class NotStored(Refused):
    """The broker cannot store anything now."""


class RocketLink:
    def __init__(self, addresses: Addresses) -> None:
        self._address = addresses.rocketmq
        self._answer_seconds = addresses.answer_seconds
        self._decoder = FrameDecoder()
        self._opaque = 0
        self._received: list[Command] = []
        self.pushed: list[Command] = []
        """Requests of the broker."""

    async def __aenter__(self) -> Self:
        host, port = self._address.split(":")
        async with asyncio.timeout(self._answer_seconds):
            self._reader, self._writer = await asyncio.open_connection(host, int(port))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

    async def ask(
        self,
        code: RequestCode,
        fields: dict[str, str],
        body: bytes = b"",
        *,
        expected: tuple[int, ...] = (0,),
    ) -> Command:
        """The answer. Raises NotStored and Refused for others than the expected."""
        self._opaque += 1
        request = Command(code, self._opaque, fields=fields, body=body)
        self._writer.write(encode_command(request))
        while True:
            command = await self._next()
            if not command.is_response:
                self.pushed.append(command)
            elif command.opaque == self._opaque:
                break
        if command.code in _LATER:
            raise NotStored(f"{code.name}: {command.remark}")
        if command.code not in expected:
            raise Refused(f"{code.name}: {command.code} {command.remark}")
        return command

    async def _next(self) -> Command:
        async with asyncio.timeout(self._answer_seconds):
            while not self._received:
                data = await self._reader.read(_READ_BYTES)
                if not data:
                    raise asyncio.IncompleteReadError(b"", None)
                self._received = self._decoder.feed(data)
        return self._received.pop(0)

    async def heartbeat(self, client: str) -> None:
        beat = Heartbeat(client=client, producer_groups=(PRODUCERS,))
        await self.ask(RequestCode.HEART_BEAT, {}, encode_heartbeat(beat))

    async def send(
        self,
        partition: Partition,
        body: bytes,
        properties: dict[str, str],
        *,
        code: RequestCode = RequestCode.SEND_MESSAGE_V2,
    ) -> Command:
        topic, queue = partition
        fields = {"a": PRODUCERS, "b": topic, "d": "4", "e": str(queue), "f": "0", "h": "0"}
        fields["i"] = encode_properties(properties)
        return await self.ask(code, fields, body)

    async def prepare(self, partition: Partition, body: bytes) -> str:
        """The place of the half message."""
        properties = {
            TRANSACTION_PREPARED: "true",
            PRODUCER_GROUP: PRODUCERS,
            "CHECK_IMMUNITY_TIME_IN_SECONDS": "1",
        }
        answer = await self.send(partition, body, properties)
        return str(int(answer.fields["msgId"][16:], 16))

    async def end(self, position: str, *, commit: bool) -> None:
        fields = {
            "producerGroup": PRODUCERS,
            "commitLogOffset": position,
            "tranStateTableOffset": "0",
            "commitOrRollback": str(COMMIT if commit else ROLL_BACK),
        }
        await self.ask(RequestCode.END_TRANSACTION, fields)

    async def pull(self, partition: Partition, offset: int) -> tuple[bytes, int, int]:
        """Messages in log format, the offset to go on from, and the end."""
        topic, queue = partition
        fields = {
            "consumerGroup": READERS,
            "topic": topic,
            "queueId": str(queue),
            "queueOffset": str(offset),
            "maxMsgNums": "64",
            "sysFlag": str(_NO_SUSPENSION_WITH_SUBSCRIPTION),
            "subscription": "*",
        }
        answer = await self.ask(
            RequestCode.PULL_MESSAGE,
            fields,
            expected=_PULLED,
        )
        body = bytes(answer.body) if answer.code == ResponseCode.SUCCESS else b""
        return body, int(answer.fields["nextBeginOffset"]), int(answer.fields["maxOffset"])
