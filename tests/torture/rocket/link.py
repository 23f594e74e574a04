"""A connection of a RocketMQ client, one request at a time."""

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from posthouse.protocols.rocketmq.codec.bodies import (
    MessageQueue,
    QueueLocks,
    decode_consumer_list,
    decode_locked_queues,
    encode_queue_locks,
)
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
from posthouse.protocols.rocketmq.codec.stored_messages import StoredMessage, decode_stored_messages
from tests.checker.history import Partition
from tests.torture.brokers import Addresses
from tests.torture.workloads import Refused

PRODUCERS: Final = "producers"
READERS: Final = "readers"
COMMIT: Final = 8
ROLL_BACK: Final = 12
DEAD: Final = -1
"""The delay level of a message that is not tried again."""
_BROKER: Final = "posthouse"
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

    async def heartbeat(self, beat: Heartbeat) -> None:
        await self.ask(RequestCode.HEART_BEAT, {}, encode_heartbeat(beat))

    async def leave(self, client: str, group: str) -> None:
        await self.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": client, "consumerGroup": group})

    async def members(self, group: str) -> tuple[str, ...]:
        answer = await self.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
        return decode_consumer_list(answer.body)

    async def send(
        self,
        partition: Partition,
        body: bytes,
        properties: dict[str, str],
        *,
        code: RequestCode = RequestCode.SEND_MESSAGE_V2,
        more: dict[str, str] | None = None,
    ) -> Command:
        """`more` are further fields."""
        topic, queue = partition
        fields = {"a": PRODUCERS, "b": topic, "d": "4", "e": str(queue), "f": "0", "h": "0"}
        fields["i"] = encode_properties(properties)
        return await self.ask(code, fields | (more or {}), body)

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

    async def pull(
        self, partition: Partition, offset: int, group: str = READERS, most: int = 64
    ) -> tuple[Sequence[StoredMessage], int, int]:
        """Messages, the offset to go on from, and the end."""
        fields = group_fields(group, partition) | {
            "queueOffset": str(offset),
            "maxMsgNums": str(most),
            "sysFlag": str(_NO_SUSPENSION_WITH_SUBSCRIPTION),
            "subscription": "*",
        }
        answer = await self.ask(RequestCode.PULL_MESSAGE, fields, expected=_PULLED)
        body = bytes(answer.body) if answer.code == ResponseCode.SUCCESS else b""
        messages = decode_stored_messages(body)
        return messages, int(answer.fields["nextBeginOffset"]), int(answer.fields["maxOffset"])

    async def committed(self, group: str, partition: Partition) -> int:
        """Where the group goes on. 0 is what a group without an offset is told, too."""
        answer = await self.ask(RequestCode.QUERY_CONSUMER_OFFSET, group_fields(group, partition))
        return int(answer.fields["offset"])

    async def commit(self, group: str, partition: Partition, offset: int) -> None:
        fields = group_fields(group, partition) | {"commitOffset": str(offset)}
        await self.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)

    async def send_back(self, group: str, message: StoredMessage, *, level: int, most_retries: int) -> None:
        """To be tried again after the delay of that level."""
        fields = {
            "group": group,
            "offset": str(message.position),
            "delayLevel": str(level),
            "originTopic": message.topic,
            "maxReconsumeTimes": str(most_retries),
        }
        await self.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields)

    async def lock(self, group: str, client: str, queues: Sequence[Partition]) -> list[Partition]:
        """Those that the client holds now."""
        answer = await self.ask(RequestCode.LOCK_BATCH_MQ, {}, _locks(group, client, queues))
        return [(each.topic, each.queue) for each in decode_locked_queues(answer.body)]

    async def unlock(self, group: str, client: str, queues: Sequence[Partition]) -> None:
        await self.ask(RequestCode.UNLOCK_BATCH_MQ, {}, _locks(group, client, queues))


def group_fields(group: str, partition: Partition) -> dict[str, str]:
    topic, queue = partition
    return {"consumerGroup": group, "topic": topic, "queueId": str(queue)}


def _locks(group: str, client: str, queues: Sequence[Partition]) -> bytes:
    wanted = [MessageQueue(topic=topic, broker=_BROKER, queue=queue) for topic, queue in queues]
    return encode_queue_locks(QueueLocks(group=group, client=client, queues=tuple(wanted)))
