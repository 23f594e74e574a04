"""A client that reads the objects of a manifest by itself."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import UUID

from posthouse.model.ids import TopicId
from posthouse.records.batch import iter_headers
from posthouse.records.visibility import AbortedProducer, visible_batches
from posthouse.storage.segment_objects import MayRead, ObjectRange, RangeManifest, SegmentManifest
from posthouse.storage.shared.logs.shared_log import SharedLog
from posthouse.storage.shared.logs.shared_logs import SharedLogs as KnownLogs
from posthouse.storage.shared.manifests.manifests import SegmentManifests
from posthouse.storage.shared.readers import Readers
from posthouse.storage.shared.reads.segment_indexes import SegmentIndexes
from tests.storage.batches import values_in
from tests.storage.shared.shared_logs import SharedLogs

SIGNED = "https://objects.example/"


def may_read_all(topic: TopicId | None) -> bool:
    return True


async def sign(keys: Sequence[str], seconds: float) -> list[str]:
    return [f"{SIGNED}{key}?for={seconds:g}" for key in keys]


@dataclass(slots=True)
class ManifestClient:
    logs: SharedLogs
    manifests: SegmentManifests
    hold: UUID | None = None
    asked: int = field(default=0, init=False)

    async def ask(
        self,
        *wanted: ObjectRange,
        committed: bool = True,
        signed: bool = False,
        may_read: MayRead = may_read_all,
    ) -> SegmentManifest:
        found = await self.manifests.manifest(
            wanted, committed=committed, signed=signed, hold=self.hold, may_read=may_read
        )
        self.hold = found.hold
        self.asked += 1
        return found

    async def range_of(
        self, log: int, first: int = 0, end: int | None = None, *, committed: bool = True
    ) -> RangeManifest:
        [found] = (await self.ask(await self.wanted(log, first, end), committed=committed)).ranges
        return found

    async def wanted(self, log: int, first: int = 0, end: int | None = None) -> ObjectRange:
        if end is None:
            [end] = await self.logs.one("SELECT next FROM log WHERE id = %s", log)
        return ObjectRange(partition=await self.logs.partition_of(log), first=first, end=end)

    async def bytes_of(self, found: RangeManifest) -> list[bytes]:
        """Of each segment."""
        return [await self.logs.objects.read(each.address, each.start, each.size) for each in found.segments]

    async def values(
        self, log: int, first: int = 0, end: int | None = None, *, committed: bool = True
    ) -> dict[int, bytes | None]:
        """What the objects have of a range, and the reader may see."""
        wanted = await self.wanted(log, first, end)
        values: dict[int, bytes | None] = {}
        while wanted.first < wanted.end:
            [found] = (await self.ask(wanted, committed=committed)).ranges
            assert found.refusal is None
            for segment, data in zip(found.segments, await self.bytes_of(found), strict=True):
                headers = [header for _, header in iter_headers(data)]
                assert sum(header.length for header in headers) == segment.size, "whole batches"
                assert headers[0].base_offset <= segment.base <= segment.last <= headers[-1].last_offset
                overlapping = [
                    AbortedProducer(each.producer_id, each.first_offset)
                    for each in found.aborted
                    if each.last_offset >= headers[0].base_offset
                ]
                seen = b"".join(
                    data[position : position + header.length]
                    for position, header in visible_batches(data, overlapping)
                )
                values |= {
                    offset: value
                    for offset, value in values_in(seen).items()
                    if segment.base <= offset <= segment.last
                }
            assert found.next > wanted.first
            wanted = ObjectRange(partition=wanted.partition, first=found.next, end=wanted.end)
        return values


@asynccontextmanager
async def manifest_client(logs: SharedLogs, *, segments: int = 1000) -> AsyncIterator[ManifestClient]:
    """Of all logs that there are now."""
    known = KnownLogs()
    found = await logs.connection.execute("SELECT id FROM log")
    for (id,) in await found.fetchall():
        known.add(SharedLog(id, await logs.partition_of(id), f"log-{id}"))
    readers = Readers(logs.database)
    try:
        yield ManifestClient(
            logs, SegmentManifests(readers, known, SegmentIndexes(readers), sign, segments=segments)
        )
    finally:
        await readers.close()
