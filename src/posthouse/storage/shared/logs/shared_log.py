"""One log as this broker knows it: its bounds, its producers, and its newest batches in memory.

The database decides; this is updated by the outcomes of commits, in the order in which they took effect.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator

from posthouse.model.ids import PartitionId
from posthouse.records.batch import BatchHeader
from posthouse.storage.bounds import Bounds
from posthouse.storage.producers import ProducerTable


class TailBatch:
    """A durable batch, with its offset."""

    __slots__ = ("data", "header")

    def __init__(self, data: bytes, header: BatchHeader) -> None:
        self.data = data
        self.header = header


class SharedLog:
    __slots__ = ("_bases", "_batches", "end", "id", "name", "partition", "producers", "size", "start")

    def __init__(self, id: int, partition: PartitionId, name: str) -> None:
        self.id = id
        """Its number in the database."""
        self.partition = partition
        self.name = name
        """Topic and partition, for people."""
        self.start = 0
        self.end = 0
        self.size = 0
        self.producers = ProducerTable()
        self._bases: deque[int] = deque()
        self._batches: deque[TailBatch] = deque()
        """The newest batches, up to the end of the log; empty if they were dropped for room."""

    @property
    def bounds(self) -> Bounds:
        first_open = self.producers.first_open()
        return Bounds(self.start, self.end, self.end if first_open is None else first_open)

    @property
    def tail_start(self) -> int:
        """Batches from this offset on are in memory."""
        return self._bases[0] if self._bases else self.end

    def append(self, batch: TailBatch) -> None:
        header = batch.header
        if header.base_offset != self.end:
            raise AssertionError(f"{self.name}: a batch at {header.base_offset} behind the end {self.end}")
        self._bases.append(header.base_offset)
        self._batches.append(batch)
        self.end = header.next_offset
        self.size += header.length

    def trim(self, offset: int) -> None:
        if offset > self.start:
            # An estimate, as in the database.
            self.size = self.size * (self.end - offset) // (self.end - self.start)
            self.start = offset
            self.producers.trim(offset)

    def drop(self, base: int) -> int:
        """Drop the oldest batch in memory if it begins at `base`; returns its bytes."""
        if not self._bases or self._bases[0] != base:
            return 0
        self._bases.popleft()
        return self._batches.popleft().header.length

    def drop_below(self, offset: int) -> int:
        """Drop the batches in memory that begin before `offset`; returns their bytes."""
        dropped = 0
        while self._bases and self._bases[0] < offset:
            self._bases.popleft()
            dropped += self._batches.popleft().header.length
        return dropped

    def tail_from(self, offset: int) -> Iterator[TailBatch]:
        """Batches in memory from the one that holds `offset` on; `offset` is not below `tail_start`."""
        first = bisect_right(self._bases, offset) - 1
        for number in range(max(first, 0), len(self._batches)):
            yield self._batches[number]


_TIDY_AT_LEAST = 1000


class Tails:
    """The memory for the newest batches of all logs: the oldest are dropped first."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._order: deque[tuple[SharedLog, int]] = deque()
        """Logs and bases of the batches, oldest first; also of some that were forgotten."""
        self._tidy_at = _TIDY_AT_LEAST
        """So long may the order become before forgotten batches are taken out."""

    @property
    def bytes(self) -> int:
        return self._bytes

    def add(self, log: SharedLog, batch: TailBatch) -> None:
        log.append(batch)
        self._order.append((log, batch.header.base_offset))
        self._bytes += batch.header.length
        while self._bytes > self._max_bytes:
            oldest, base = self._order.popleft()
            self._bytes -= oldest.drop(base)

    def forget_below(self, log: SharedLog, offset: int) -> None:
        self._bytes -= log.drop_below(offset)
        if len(self._order) > self._tidy_at:
            self._order = deque(each for each in self._order if each[1] >= each[0].tail_start)
            self._tidy_at = max(2 * len(self._order), _TIDY_AT_LEAST)
