"""Somebody who deletes the oldest records of one partition, now and then. They must never come back."""

import asyncio
from random import Random

from posthouse.protocols.kafka.codec.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from posthouse.protocols.kafka.errors import ErrorCode
from tests.checker.history import Partition
from tests.protocols.kafka.wire import Wire
from tests.torture.brokers import Addresses
from tests.torture.stream.links import Link, check
from tests.torture.stream.offsets import EARLIEST, LATEST, offset_of

TRIMMED: Partition = ("payments", 1)
_EVERY_SECONDS = 0.1
_KEPT = 200
"""Readers are not further behind than that."""


class Trimmer:
    def __init__(self, random: Random) -> None:
        self._random = random

    async def live(self, addresses: Addresses) -> None:
        async with Link(addresses) as wire:
            while True:
                await asyncio.sleep(_EVERY_SECONDS)
                start = await offset_of(wire, TRIMMED, EARLIEST)
                end = await offset_of(wire, TRIMMED, LATEST)
                if end - start > _KEPT:
                    await self._trim(wire, self._random.randint(start, end - _KEPT))

    async def _trim(self, wire: Wire, offset: int) -> None:
        name, index = TRIMMED
        partition = DeleteRecordsPartition(partition_index=index, offset=offset)
        topic = DeleteRecordsTopic(name=name, partitions=[partition])
        answer = await wire.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=5000), DeleteRecordsResponse)
        code = answer.topics[0].partitions[0].error_code
        if code != ErrorCode.KAFKA_STORAGE_ERROR:
            check(code, "DeleteRecords")
