"""Records of a topic for people to look at: bounded scans, by partition and offset.

A scan reads whole batches and decodes them on another thread: neither a large batch nor a long one blocks the
event loop. It ends when it has enough records, or has read enough bytes, and says where it stopped.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta

from posthouse.model.errors import BadRequest
from posthouse.model.ids import PartitionId
from posthouse.model.topics import Topic
from posthouse.protocols.admin.payloads import Payload, shown
from posthouse.protocols.admin.turns import in_turns
from posthouse.records.batch import Readable, iter_headers
from posthouse.records.record import Record, iter_records
from posthouse.records.visibility import AbortedProducer, visible_batches
from posthouse.storage.bounds import Bounds, Slice
from posthouse.storage.producers import AbortedTransaction

_SLICE_BYTES = 256 * 1024


class HeaderView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: Payload | None


class RecordView(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    offset: int
    timestamp: Annotated[int, Meta(description="Milliseconds since 1970; -1 if the record has none.")]
    key: Payload | None
    value: Annotated[Payload | None, Meta(description="null in a tombstone.")]
    headers: list[HeaderView]


class Log(Protocol):
    """What reading needs of the broker."""

    def bounds(self, topic: Topic, partition: int) -> Bounds: ...

    async def read(
        self, topic: Topic, partition: int, offset: int, max_bytes: int, *, stable_only: bool = False
    ) -> Slice: ...

    def aborted(self, partition: PartitionId, start: int, end: int) -> list[AbortedTransaction]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    key: bytes | None = None
    """Only records with this key."""
    limit: int
    max_bytes: int
    """Of batches that are read, and of records that are shown."""
    value_bytes: int
    """Longer keys, values and headers are cut."""
    stable_only: bool
    """Neither aborted transactions nor what lies behind an open one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}-{self.offset}"

    @classmethod
    def parse(cls, text: str) -> "Position":
        partition, _, offset = text.partition("-")
        return cls(partition=int(partition), offset=int(offset))


@dataclass(slots=True, kw_only=True)
class Found:
    records: list[RecordView] = field(default_factory=list)
    scanned_bytes: int = 0
    shown_bytes: int = 0
    unreadable_batches: int = 0
    next: Position | None = None
    """Where to go on; None where the end was reached."""

    def is_enough(self, wanted: Wanted) -> bool:
        return (
            len(self.records) >= wanted.limit
            or self.scanned_bytes >= wanted.max_bytes
            or self.shown_bytes >= wanted.max_bytes
        )


class RecordScan:
    """One request's look into one topic."""

    def __init__(self, log: Log, topic: Topic, wanted: Wanted) -> None:
        self._log = log
        self._topic = topic
        self._wanted = wanted

    async def forward(
        self, partitions: Iterable[int], start: Callable[[int], Awaitable[int | None]], after: Position | None
    ) -> Found:
        """Partition by partition, from `start` of each; None leaves it out. The first one goes on `after`."""
        found = Found()
        async for partition in in_turns(partitions):
            if after is not None and after.partition == partition:
                offset: int | None = max(after.offset, self._log.bounds(self._topic, partition).start)
            else:
                offset = await start(partition)
            while offset is not None and offset < self._end(partition):
                if found.is_enough(self._wanted):
                    found.next = Position(partition=partition, offset=offset)
                    return found
                offset = await self._read(partition, offset, found)
        return found

    async def newest(self, partitions: Iterable[int]) -> Found:
        """The newest records of all `partitions`, the newest first."""
        result = Found()
        async for partition in in_turns(partitions):
            if result.scanned_bytes >= self._wanted.max_bytes:
                result.next = Position(partition=partition, offset=0)
                break
            tail = await self._tail(partition, result)
            if not tail:
                continue
            records = [*result.records, *tail]
            result.records = heapq.nlargest(
                self._wanted.limit, records, key=lambda each: (each.timestamp, each.partition, each.offset)
            )
        return result

    async def _tail(self, partition: int, result: Found) -> Collection[RecordView]:
        """The last records: looked for further back while compaction and markers leave too few."""
        start, end = self._log.bounds(self._topic, partition).start, self._end(partition)
        back = self._wanted.limit
        while True:
            offset = first = max(start, end - back)
            last: deque[RecordView] = deque(maxlen=self._wanted.limit)
            while offset < end and result.scanned_bytes < self._wanted.max_bytes:
                found = Found()
                offset = await self._read(partition, offset, found)
                last.extend(found.records)
                result.scanned_bytes += found.scanned_bytes
                result.unreadable_batches += found.unreadable_batches
            is_spent = result.scanned_bytes >= self._wanted.max_bytes
            if len(last) == self._wanted.limit or first == start or is_spent:
                return last
            back *= 4

    def _end(self, partition: int) -> int:
        bounds = self._log.bounds(self._topic, partition)
        return bounds.stable if self._wanted.stable_only else bounds.end

    async def _read(self, partition: int, offset: int, found: Found) -> int:
        """The next records from `offset` on are added to `found`. Returns the offset to go on from."""
        size = min(_SLICE_BYTES, max(self._wanted.max_bytes - found.scanned_bytes, 1))
        stable_only = self._wanted.stable_only
        data = (await self._log.read(self._topic, partition, offset, size, stable_only=stable_only)).data
        if not data:
            return self._end(partition)
        found.scanned_bytes += len(data)
        aborted = self._aborted(partition, data) if stable_only else []
        decode = partial(_decoded, data, aborted, partition, offset, self._wanted, found)
        return await asyncio.to_thread(decode)

    def _aborted(self, partition: int, data: Readable) -> list[AbortedProducer]:
        headers = [header for _, header in iter_headers(data)]
        aborted = self._log.aborted(
            self._topic.partition(partition), headers[0].base_offset, headers[-1].next_offset
        )
        return [
            AbortedProducer(producer_id=each.producer_id, first_offset=each.first_offset) for each in aborted
        ]


def _decoded(
    data: Readable,
    aborted: Iterable[AbortedProducer],
    partition: int,
    offset: int,
    wanted: Wanted,
    found: Found,
) -> int:
    for position, header in visible_batches(data, aborted):
        batch = memoryview(data)[position : position + header.length]
        try:
            for record in iter_records(batch):
                if record.offset < offset or (wanted.key is not None and record.key != wanted.key):
                    continue
                view = _view(partition, record, wanted.value_bytes)
                found.records.append(view)
                found.shown_bytes += _size(view)
                if len(found.records) >= wanted.limit or found.shown_bytes >= wanted.max_bytes:
                    return record.offset + 1
        except BadRequest:
            # The broker stores compressed batches without opening them: this one is not what it says.
            found.unreadable_batches += 1
    return max(header.next_offset for _, header in iter_headers(data))


def _view(partition: int, record: Record, limit: int) -> RecordView:
    return RecordView(
        partition=partition,
        offset=record.offset,
        timestamp=record.timestamp,
        key=shown(record.key, limit),
        value=shown(record.value, limit),
        headers=[HeaderView(name=name, value=shown(value, limit)) for name, value in record.headers],
    )


def _size(view: RecordView) -> int:
    payloads = [view.key, view.value, *(each.value for each in view.headers)]
    return sum(len(each.data) if isinstance(each.data, str) else each.size for each in payloads if each)
