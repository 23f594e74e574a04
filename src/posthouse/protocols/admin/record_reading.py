"""Records of a topic for people to look at: bounded scans, by partition and offset.

A scan reads whole batches and decodes them on a thread of its own: neither a large batch nor a long one
blocks the event loop, and other work on threads does not wait for it. Batches are counted as they are in
memory, decompressed, and each is decompressed once. A scan ends when it has enough records, or has read
enough bytes, and says where it stopped.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol, TypeVar

from posthouse.broker.key_index.key_index import KeyIndex
from posthouse.broker.key_index.names import NameQuery
from posthouse.broker.key_index.partition_index import Place
from posthouse.model.errors import BadRequest
from posthouse.model.topics import Topic
from posthouse.protocols.admin.payloads import KnownSchemas
from posthouse.protocols.admin.record_views import RecordView, ShownRecord, shown_record
from posthouse.protocols.admin.turns import in_turns
from posthouse.records.batch import BatchHeader, iter_headers
from posthouse.records.record import Record, body_of, iter_body
from posthouse.records.record_names import names_in
from posthouse.records.visibility import AbortedProducer, visible_batches
from posthouse.storage.bounds import Bounds, Slice

T = TypeVar("T")

_SLICE_BYTES = 256 * 1024
_NO_END = 1 << 63
_UNREADABLE_BYTES = 512 * 1024
"""Counted for a batch that cannot be decompressed: the attempt may have taken long."""
_DECODERS: Final = ThreadPoolExecutor(2, "posthouse-record-views")
"""Of the process: there are two decompressed batches in memory at most, however many clients look."""


class TopicLog(Protocol):
    """What reading needs of the broker."""

    @property
    def key_index(self) -> KeyIndex: ...

    def bounds(self, topic: Topic, partition: int) -> Bounds: ...

    async def read(
        self, topic: Topic, partition: int, offset: int, max_bytes: int, *, stable_only: bool = False
    ) -> Slice: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedRecords:
    query: NameQuery | None = None
    """Only records with this name and time."""
    limit: int
    max_bytes: int
    """Of batches that are read, decompressed, and of records that are shown. The last one may exceed it."""
    value_bytes: int
    """Longer keys, values and headers are cut."""
    stable_only: bool
    """Neither aborted transactions nor what lies behind an open one."""
    schemas: KnownSchemas
    """Of payloads that need one."""

    def wants(self, record: Record) -> bool:
        query = self.query
        return query is None or (
            query.has_time(record.timestamp) and query.name in names_in(record.key, record.headers)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPosition:
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}-{self.offset}"

    @classmethod
    def parse(cls, text: str) -> "RecordPosition":
        partition, _, offset = text.partition("-")
        return cls(partition=int(partition), offset=int(offset))


@dataclass(slots=True, kw_only=True)
class FoundRecords:
    shown: list[ShownRecord] = field(default_factory=list)
    scanned_bytes: int = 0
    """After decompression."""
    shown_bytes: int = 0
    unreadable_batches: int = 0
    next: RecordPosition | None = None
    """Where to go on; None where the end was reached."""

    @property
    def records(self) -> list[RecordView]:
        return [each.view for each in self.shown]

    def add(self, record: ShownRecord) -> None:
        self.shown.append(record)
        self.shown_bytes += record.size

    def is_full(self, wanted: WantedRecords) -> bool:
        return len(self.shown) >= wanted.limit or self.shown_bytes >= wanted.max_bytes

    def is_enough(self, wanted: WantedRecords) -> bool:
        return self.scanned_bytes >= wanted.max_bytes or self.is_full(wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    header: BatchHeader
    data: memoryview


class RecordScan:
    """One request's look into one topic."""

    def __init__(self, log: TopicLog, topic: Topic, wanted: WantedRecords) -> None:
        self._log = log
        self._topic = topic
        self._wanted = wanted
        self._search = None if wanted.query is None else log.key_index.search(wanted.query)

    async def forward(
        self,
        partitions: Iterable[int],
        start: Callable[[int], Awaitable[int | None]],
        after: RecordPosition | None,
    ) -> FoundRecords:
        """Partition by partition, from `start` of each; None leaves it out. The first one goes on `after`."""
        found = FoundRecords()
        async for partition in in_turns(partitions):
            if after is not None and after.partition == partition:
                offset: int | None = max(after.offset, self._log.bounds(self._topic, partition).start)
            else:
                offset = await start(partition)
            if offset is None:
                continue
            async with aclosing(self._places(partition, offset)) as places:
                async for place in places:
                    offset = max(offset, place.first)
                    while offset < min(place.end, self._end(partition)):
                        if found.is_enough(self._wanted):
                            found.next = RecordPosition(partition=partition, offset=offset)
                            return found
                        offset = await self._read(partition, offset, found, is_exact=place.is_exact)
        return found

    async def _places(self, partition: int, offset: int) -> AsyncGenerator[Place, None]:
        """Where to read, from `offset` on."""
        if self._search is None:
            # The end may move meanwhile.
            yield Place(offset, _NO_END, is_exact=False)
            return
        end = max(self._end(partition), offset)
        places = self._search(self._topic.partition(partition), offset, end)
        async with aclosing(places):
            async for place in places:
                yield place

    async def newest(self, partitions: Iterable[int]) -> FoundRecords:
        """The newest records of all `partitions`, the newest first."""
        result = FoundRecords()
        async for partition in in_turns(partitions):
            if result.scanned_bytes >= self._wanted.max_bytes:
                result.next = RecordPosition(partition=partition, offset=0)
                break
            before, before_bytes = result.shown, result.shown_bytes
            result.shown, result.shown_bytes = [], 0
            await self._tail(partition, result)
            if not result.shown:
                result.shown, result.shown_bytes = before, before_bytes
                continue
            shown, result.shown, result.shown_bytes = [*before, *result.shown], [], 0
            for each in heapq.nlargest(self._wanted.limit, shown, key=_age):
                if not result.is_full(self._wanted):
                    result.add(each)
        return result

    async def _tail(self, partition: int, result: FoundRecords) -> None:
        """Add the last records to `result`, the newest first: looked for further and further back.

        The last batch tells how many more offsets the rest of `max_bytes` may have.
        """
        wanted = self._wanted
        start = self._log.bounds(self._topic, partition).start
        end = upper = self._end(partition)
        before, step, most = result.scanned_bytes, 1, wanted.limit
        while upper > start:
            if result.is_enough(wanted):
                if not result.is_full(wanted):
                    result.next = RecordPosition(partition=partition, offset=0)
                return
            batches, upper = await self._batches(partition, max(start, upper - step), upper, result)
            await on_a_thread(partial(_add_newest, batches, partition, start, wanted, result))
            bytes_of_one = max((result.scanned_bytes - before) // (end - upper), 1)
            step = min(max((wanted.max_bytes - result.scanned_bytes) // bytes_of_one, 1), most)
            most *= 4

    async def _batches(
        self, partition: int, first: int, upper: int, result: FoundRecords
    ) -> tuple[list[_Batch], int]:
        """Visible batches from the one with offset `first` up to `upper`, and where they begin."""
        found: list[_Batch] = []
        begin = offset = first
        size = 0
        while offset < upper and size < self._wanted.max_bytes:
            read = await self._slice(partition, offset, self._wanted.max_bytes - size)
            if not read.data:
                break
            headers = [header for _, header in iter_headers(read.data)]
            begin, offset = min(begin, headers[0].base_offset), headers[-1].next_offset
            size += sum(each.length for each in headers if each.base_offset < upper)
            found += [each for each in _visible(read) if each.header.base_offset < upper]
        result.scanned_bytes += size
        if offset < upper:
            result.next = RecordPosition(partition=partition, offset=0)
        return found, begin

    def _end(self, partition: int) -> int:
        bounds = self._log.bounds(self._topic, partition)
        return bounds.stable if self._wanted.stable_only else bounds.end

    async def _read(self, partition: int, offset: int, found: FoundRecords, *, is_exact: bool) -> int:
        """The next records from `offset` on are added to `found`, or those of its batch. Returns the offset
        to go on from."""
        most = 1 if is_exact else self._wanted.max_bytes - found.scanned_bytes
        read = await self._slice(partition, offset, most)
        if not read.data:
            return self._end(partition)
        before = found.scanned_bytes
        found.scanned_bytes += len(read.data)
        end = max(header.next_offset for _, header in iter_headers(read.data))
        batches = _visible(read)
        stopped = await on_a_thread(partial(_add_oldest, batches, partition, offset, self._wanted, found))
        if self._search is not None:
            self._log.key_index.searched_bytes += found.scanned_bytes - before
        return end if stopped is None else stopped

    async def _slice(self, partition: int, offset: int, most: int) -> Slice:
        size = min(_SLICE_BYTES, max(most, 1))
        stable_only = self._wanted.stable_only
        return await self._log.read(self._topic, partition, offset, size, stable_only=stable_only)


def _visible(read: Slice) -> list[_Batch]:
    view = memoryview(read.data)
    aborted = [
        AbortedProducer(producer_id=each.producer_id, first_offset=each.first_offset) for each in read.aborted
    ]
    return [
        _Batch(header=header, data=view[position : position + header.length])
        for position, header in visible_batches(read.data, aborted)
    ]


def _age(record: ShownRecord) -> tuple[int, int, int]:
    return record.view.timestamp, record.view.partition, record.view.offset


async def on_a_thread(work: Callable[[], T]) -> T:
    """Where records are decoded."""
    return await asyncio.get_running_loop().run_in_executor(_DECODERS, work)


def _add_oldest(
    batches: Iterable[_Batch], partition: int, start: int, wanted: WantedRecords, found: FoundRecords
) -> int | None:
    """Add records from offset `start` on. Returns the offset to go on from; None after the last batch."""
    for batch in batches:
        for record in _records(batch, found):
            if record.offset < start or not wanted.wants(record):
                continue
            found.add(shown_record(partition, record, wanted.value_bytes, wanted.schemas))
            if found.is_full(wanted):
                return record.offset + 1
        if found.scanned_bytes >= wanted.max_bytes:
            return batch.header.next_offset
    return None


def _add_newest(
    batches: Sequence[_Batch], partition: int, start: int, wanted: WantedRecords, found: FoundRecords
) -> None:
    """Add records down to offset `start`, the newest first."""
    for batch in reversed(batches):
        last = deque(
            (each for each in _records(batch, found) if each.offset >= start),
            maxlen=wanted.limit - len(found.shown),
        )
        while last and not found.is_full(wanted):
            found.add(shown_record(partition, last.pop(), wanted.value_bytes, wanted.schemas))
        if found.is_enough(wanted):
            return


def _records(batch: _Batch, found: FoundRecords) -> Iterable[Record]:
    try:
        body = body_of(batch.data, batch.header)
        found.scanned_bytes += max(len(body) - len(batch.data), 0)
        yield from iter_body(body, batch.header)
    except BadRequest:
        # The broker stores compressed batches without opening them: this one is not what it says.
        found.unreadable_batches += 1
        found.scanned_bytes += _UNREADABLE_BYTES
