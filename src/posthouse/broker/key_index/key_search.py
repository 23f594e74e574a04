"""Searches by key or message id: asks the index where records may be, and reads them there.

What is found is compared with the name and the time, so a hit is a record. What the index does not know is
read. A search ends when it has enough records, has read enough bytes, or takes too long, and says so.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from posthouse.broker.key_index.key_index import KeyIndex
from posthouse.broker.key_index.names import NameQuery
from posthouse.broker.key_index.partition_index import Place, Places
from posthouse.model.clock import Clock
from posthouse.model.errors import BadRequest, OffsetOutOfRange
from posthouse.model.topics import Topic
from posthouse.records.batch import iter_headers
from posthouse.records.raw import RawRecord, iter_raw
from posthouse.records.record import body_of
from posthouse.records.record_names import names_of
from posthouse.records.visibility import AbortedProducer, visible_batches
from posthouse.storage.bounds import Bounds, Slice

_READ_BYTES: Final = 256 * 1024
_ONE_BATCH: Final = 1
_QUICK: Final = 16 * 1024
"""Bytes that are decoded on the event loop."""
_UNREADABLE_BYTES: Final = 512 * 1024
"""Counted for a batch that cannot be decompressed: the attempt may have taken long."""
_AT_ONCE: Final = 4
"""Searches; others wait."""

Read: TypeAlias = Callable[..., Coroutine[Any, Any, Slice]]
"""`LogReader.read`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLimits:
    records: int
    record_bytes: int = 4 * 1024 * 1024
    """Of values of records that are found; more only if one has more."""
    read_bytes: int = 256 * 1024 * 1024
    """Of batches that are read, decompressed."""
    seconds: float = 5.0


class FoundRecord(NamedTuple):
    partition: int
    record: RawRecord


@dataclass(slots=True)
class FoundByName:
    records: list[FoundRecord] = field(default_factory=list)
    record_bytes: int = 0
    read_bytes: int = 0
    is_complete: bool = True
    """Whether there are no others. If it is not, and there are not as many as were wanted, the search was
    ended by its limits."""


class _Part(NamedTuple):
    """Of one read."""

    hits: list[RawRecord]
    size: int
    first: int
    """The offset from which on it has all hits."""
    following: int


class KeySearch:
    """Owned by the event loop."""

    def __init__(
        self, index: KeyIndex, read: Read, bounds: Callable[[Topic, int], Bounds], clock: Clock
    ) -> None:
        self._index = index
        self._read = read
        self._bounds = bounds
        self._clock = clock
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._decoders: ThreadPoolExecutor | None = None

    def close(self) -> None:
        if self._decoders is not None:
            self._decoders.shutdown()

    async def newest(self, topic: Topic, query: NameQuery, limits: SearchLimits) -> FoundByName:
        """Committed records of all partitions, the newest of each partition first. Raises Unavailable."""
        found = FoundByName()
        places = self._index.search(query)
        async with self._turns:
            deadline = self._clock.monotonic() + limits.seconds
            for partition in range(topic.partitions):
                await self._search(topic, partition, query, places, limits, deadline, found)
                if not found.is_complete:
                    break
        self._index.searched_bytes += found.read_bytes
        return found

    async def _search(
        self,
        topic: Topic,
        partition: int,
        query: NameQuery,
        places: Places,
        limits: SearchLimits,
        deadline: float,
        found: FoundByName,
    ) -> None:
        bounds = self._bounds(topic, partition)
        falling = places(topic.partition(partition), bounds.start, bounds.stable, newest_first=True)
        lowest = bounds.stable
        """Everything from there on was looked at."""
        async with aclosing(falling):
            async for place in falling:
                if place.first >= lowest:
                    continue  # it is in a batch that was read for a later place
                upper = min(place.end, lowest)
                position = lowest = place.first
                hits: list[RawRecord] = []
                has_more = False
                """The newest hits are the last ones: reading goes on to the end of the place."""
                while position < upper and found.is_complete:
                    wanted = limits.records - len(found.records)
                    if (
                        wanted <= 0
                        or found.record_bytes >= limits.record_bytes
                        or found.read_bytes >= limits.read_bytes
                        or self._clock.monotonic() >= deadline
                    ):
                        found.is_complete = False
                        break
                    part = await self._part(topic, partition, place, position, upper, query)
                    found.read_bytes += part.size
                    if place.is_exact:
                        lowest = min(lowest, part.first)
                    hits += part.hits
                    if (excess := _excess(hits, wanted, limits.record_bytes - found.record_bytes)) > 0:
                        has_more = True
                        del hits[:excess]
                    position = max(part.following, position + 1)
                found.records += [FoundRecord(partition, each) for each in reversed(hits)]
                found.record_bytes += sum(len(each.value) for each in hits)
                if has_more:
                    found.is_complete = False
                if not found.is_complete:
                    return

    async def _part(
        self, topic: Topic, partition: int, place: Place, position: int, upper: int, query: NameQuery
    ) -> _Part:
        """The records of the query from `position` on, in one read; for one offset, those of its batch."""
        size = _ONE_BATCH if place.is_exact else _READ_BYTES
        try:
            read = await self._read(topic, partition, position, size, stable_only=True)
        except OffsetOutOfRange:
            start = self._bounds(topic, partition).start
            if start <= position:
                raise
            return _Part([], 0, position, start)  # retention was faster
        if not read.data:
            return _Part([], 0, position, upper)
        first = max(read.bounds.start, 0) if place.is_exact else position
        if len(read.data) <= _QUICK:
            return _matches(read, first, upper, query)
        if self._decoders is None:
            self._decoders = ThreadPoolExecutor(1, "posthouse-key-search")
        return await asyncio.get_running_loop().run_in_executor(
            self._decoders, _matches, read, first, upper, query
        )


def _excess(hits: Sequence[RawRecord], most: int, most_bytes: int) -> int:
    """How many of the first are too many. One is never too large."""
    kept = size = 0
    for hit in reversed(hits):
        size += len(hit.value)
        if kept == most or (kept and size > most_bytes):
            break
        kept += 1
    return len(hits) - kept


def _matches(read: Slice, first: int, end: int, query: NameQuery) -> _Part:
    """Batches that cannot be decoded have none: their producer has compressed them wrongly."""
    aborted = [
        AbortedProducer(producer_id=each.producer_id, first_offset=each.first_offset) for each in read.aborted
    ]
    view = memoryview(read.data)
    hits: list[RawRecord] = []
    headers = [header for _, header in iter_headers(view)]
    size = len(view)
    for at, header in visible_batches(view, aborted):
        if header.base_offset >= end or not header.count:
            continue
        try:
            body = body_of(view[at : at + header.length], header)
            size += len(body)
            hits += [
                record
                for record in iter_raw(body, header, first, end)
                if query.has_time(record.timestamp) and query.name in names_of(record.key, record.headers)
            ]
        except BadRequest:
            size += _UNREADABLE_BYTES
    return _Part(hits, size, max(headers[0].base_offset, first), headers[-1].next_offset)
