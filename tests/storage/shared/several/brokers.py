"""Brokers on one database, and readers that know no more than a client is told."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from posthouse.model.ids import PartitionId
from posthouse.model.topics import Topic
from posthouse.records.batch import iter_headers
from posthouse.records.control import is_commit
from posthouse.records.record import iter_records
from posthouse.storage.bounds import Slice
from posthouse.storage.shared.engine import SharedStorage

_DEADLINE_SECONDS = 30.0


class Brokers(NamedTuple):
    a: SharedStorage
    """Has the lease."""
    b: SharedStorage
    c: SharedStorage

    async def create(self, topic: Topic) -> None:
        """All of them know it."""
        await self.a.create_topics([topic])
        for each in (self.b, self.c):
            await each.refresh_definitions()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(_DEADLINE_SECONDS):
        while not is_so():
            await asyncio.sleep(0.005)


def committed_in(slice: Slice) -> dict[int, bytes | None]:
    """Offset → value of the records that a client shows which reads committed ones only."""
    waiting = sorted(slice.aborted, key=lambda each: each.first_offset)
    aborting: set[int] = set()
    found: dict[int, bytes | None] = {}
    view = memoryview(slice.data)
    for position, header in iter_headers(view):
        batch = view[position : position + header.length]
        while waiting and waiting[0].first_offset <= header.last_offset:
            aborting.add(waiting.pop(0).producer_id)
        if header.is_control:
            if not is_commit(batch):
                aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            found |= {record.offset: record.value for record in iter_records(batch)}
    return found


async def read_committed(
    storage: SharedStorage, partition: PartitionId, max_bytes: int = 500
) -> dict[int, bytes | None]:
    """All that is stable, as `storage` has it now."""
    await storage.refresh([partition])
    bounds = storage.bounds(partition)
    offset = bounds.start
    found: dict[int, bytes | None] = {}
    while offset < bounds.stable:
        part = await storage.read(partition, offset, max_bytes, stable_only=True)
        headers = [header for _, header in iter_headers(part.data)]
        assert headers and headers[0].base_offset <= offset < headers[0].next_offset
        assert headers[-1].next_offset <= part.bounds.stable
        found |= committed_in(part)
        offset = headers[-1].next_offset
    return {offset: value for offset, value in found.items() if offset >= bounds.start}
