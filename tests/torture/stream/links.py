"""What clients of the log have in common: connections, topics, batches, and answers."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Self, TypeVar

from posthouse.protocols.kafka.codec.generated.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from posthouse.protocols.kafka.codec.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.records.builder import BatchBuilder
from tests.checker.history import Partition
from tests.protocols.kafka.wire import Wire
from tests.torture.brokers import Addresses
from tests.torture.recording import PATIENCE
from tests.torture.workloads import LOST, RETRY_SECONDS, Refused

Found = TypeVar("Found")

_PADDINGS = (0, 0, 20, 200, 200, 2000)
_MOVES = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)
"""A group is on its way to another broker."""


@dataclass(frozen=True, slots=True)
class Topics:
    """Their ids, and how many partitions each has."""

    ids: dict[str, bytes]
    partitions: dict[str, int]

    def all(self) -> list[Partition]:
        return [(name, index) for name, count in self.partitions.items() for index in range(count)]

    def name(self, id: bytes) -> str:
        return next(name for name, each in self.ids.items() if each == id)


class Link(Wire):
    """Hangs up where an answer takes too long."""

    def __init__(self, addresses: Addresses) -> None:
        super().__init__(addresses.kafka)
        self._answer_seconds = addresses.answer_seconds

    async def __aenter__(self) -> Self:
        async with asyncio.timeout(self._answer_seconds):
            return await super().__aenter__()

    async def receive_frame(self) -> bytes:
        async with asyncio.timeout(self._answer_seconds):
            return await super().receive_frame()


class RefusedWith(Refused):
    def __init__(self, what: str, code: int, message: str | None = None) -> None:
        super().__init__(f"{what}: {ErrorCode(code).name} {message or ''}")
        self.code = code


def check(code: int, what: str, message: str | None = None) -> None:
    if code:
        raise RefusedWith(what, code, message)


@asynccontextmanager
async def group_link(addresses: Addresses, group: str) -> AsyncIterator[Link]:
    """To the broker that coordinates the group. The one that the client knows tells which it is."""
    async with Link(addresses) as wire:
        request = FindCoordinatorRequest(coordinator_keys=[group])
        [found] = (await wire.ask(request, FindCoordinatorResponse)).coordinators
    check(found.error_code, "FindCoordinator", found.error_message)
    async with Link(replace(addresses, kafka=f"{found.host}:{found.port}")) as wire:
        yield wire


async def insisted(call: Callable[[], Awaitable[Found]]) -> Found:
    """Again and again while groups are on their way to the only broker that is left. Until its next heartbeat
    that one may still name a broker that is gone."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return await call()
        except RefusedWith as refusal:
            if refusal.code not in _MOVES or time.monotonic() > deadline:
                raise
        except LOST:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(RETRY_SECONDS)


def encode_value(value: int, random: Random) -> bytes:
    """Of different sizes, so that segments and journal files end at all kinds of places."""
    return b"%d:" % value + b"." * random.choice(_PADDINGS)


def decode_value(data: bytes) -> int:
    number, colon, padding = data.partition(b":")
    if not colon or padding.strip(b"."):
        return -1  # nobody sent this
    return int(number)


def build_batch(
    values: list[int],
    random: Random,
    *,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
) -> bytearray:
    builder = BatchBuilder(
        producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
    )
    for value in values:
        builder.add(None, encode_value(value, random), timestamp=1_700_000_000_000)
    return builder.build()


def produce(
    topics: Topics, batches: dict[Partition, bytearray], transactional_id: str | None = None
) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[
            TopicProduceData(
                topic_id=topics.ids[name],
                partition_data=[PartitionProduceData(index=index, records=bytes(batch))],
            )
            for (name, index), batch in batches.items()
        ],
    )
