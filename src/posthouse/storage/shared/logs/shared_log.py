"""One log as this broker knows it: its bounds, and the newest batches that this broker wrote.

The database decides, and other brokers write to the log, too. So this is a cache: what it says was true at
some time. It learns from the outcomes of this broker's commits, in the order in which they took effect; from
the database (`observe`); and from other brokers (`hint`). An outcome may come later than news that include
it. `start`, `end` and `stable` never decrease.

A broker knows 100,000 logs, and most of them are quiet: memory for batches and producers is made when there
are some.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from posthouse.model.ids import PartitionId
from posthouse.records.batch import BatchHeader
from posthouse.storage.bounds import Bounds
from posthouse.storage.producers import NOT_OPEN, AbortedTransaction, Producer, ProducerTable

_OWN_MEMORY = 64 * 1024
_NO_PRODUCERS: Mapping[int, Producer] = MappingProxyType({})


class TailBatch:
    """A durable batch, with its offset. Its bytes do not change any more."""

    __slots__ = ("data", "header")

    def __init__(self, batch: memoryview, header: BatchHeader) -> None:
        self.data: bytes | memoryview
        # A large batch mostly has its own memory, that of its request: it is not copied.
        if len(batch) >= _OWN_MEMORY and 4 * len(batch) >= 3 * len(batch.obj):  # type: ignore[arg-type]
            self.data = batch.toreadonly()
        else:
            self.data = bytes(batch)
        self.header = header


class SharedLog:
    __slots__ = (
        "_batches",
        "_producers",
        "_topic",
        "end",
        "id",
        "is_current",
        "observed_producers",
        "partition",
        "size",
        "stable",
        "start",
        "tail_end",
    )

    def __init__(self, id: int, partition: PartitionId, topic: str) -> None:
        """`topic` is its name, for people."""
        self.id = id
        """Its number in the database."""
        self.partition = partition
        self._topic = topic
        self.start = 0
        self.end = 0
        self.stable = 0
        """Every transaction below is decided."""
        self.size = 0
        self.is_current = True
        """Whether `size` and `stable` are those of a log that ends at `end`. If not, the next look into the
        database tells."""
        self._producers: ProducerTable | None = None
        self.observed_producers: Mapping[int, Producer] = _NO_PRODUCERS
        """As the database had them when it was last asked."""
        self.tail_end = 0
        """Below it are the batches in memory, without a gap."""
        self._batches: deque[TailBatch] | None = None
        """None if there are none."""

    @property
    def name(self) -> str:
        """Topic and partition, for people."""
        return f"{self._topic}-{self.partition.index}"

    @property
    def bounds(self) -> Bounds:
        return Bounds(self.start, self.end, self.stable)

    @property
    def producers(self) -> ProducerTable:
        """As they were loaded, and by the outcomes of this broker's commits; only in the coordinator.

        To be changed: what only reads uses the methods below, which make no table for a log without any.
        """
        if self._producers is None:
            self._producers = ProducerTable()
        return self._producers

    def producer(self, id: int) -> Producer | None:
        return None if self._producers is None else self._producers.get(id)

    def aborted_between(self, start: int, end: int) -> Sequence[AbortedTransaction]:
        """The aborted transactions with a record or marker at an offset from `start` to before `end`."""
        return () if self._producers is None else self._producers.aborted_between(start, end)

    def forget_producers(self) -> None:
        self._producers = None

    def forget_aborted(self, markers: Sequence[int]) -> None:
        """The aborted transactions whose markers were at these offsets."""
        if self._producers is not None:
            self._producers.forget_aborted(set(markers))

    def expire_producers(self, before_ms: int) -> None:
        """Forget producers without a batch since `before_ms`, and changes that only local files need."""
        if self._producers is not None:
            self._producers.expire(before_ms)
            self._producers.take_changes()

    @property
    def tail_start(self) -> int:
        """Batches from this offset to before `tail_end` are in memory."""
        return self._batches[0].header.base_offset if self._batches else self.tail_end

    def append(self, batch: TailBatch, first_open: int | None = None) -> int:
        """Add a batch that this broker has written. Then the oldest open transaction began at `first_open`.

        Returns the bytes that were dropped from memory: if others have written before it, a new tail begins.
        """
        header = batch.header
        base, following = header.base_offset, header.next_offset
        dropped = 0 if base == self.tail_end else self._drop_all()
        if self._batches is None:
            self._batches = deque()
        self._batches.append(batch)
        self.tail_end = following
        decided = following if first_open is None or first_open > following else first_open
        if decided > self.stable:
            self.stable = decided
        if base >= self.end:
            if base > self.end:
                self.is_current = False
            self.end = following
            self.size += header.length
        return dropped

    def trim(self, offset: int) -> None:
        """The start is at `offset` or behind."""
        if offset <= self.start:
            return
        if offset > self.end:  # others have written before it was trimmed
            self.end = offset
            self.stable = max(self.stable, offset)
            self.is_current = False
        # An estimate, as in the database.
        self.size = self.size * (self.end - offset) // (self.end - self.start)
        self.start = offset
        if self._producers is not None:
            self._producers.trim(offset)

    def observe(self, start: int, end: int, size: int, first_open: int | None) -> None:
        """What the database has, or had before the latest outcomes: `first_open` is the first offset of the
        oldest open transaction."""
        is_newest = end >= self.end
        if is_newest:
            self.end = end
            self.stable = max(self.stable, end if first_open is None else first_open)
        self.trim(start)
        if is_newest:
            self.is_current = start == self.start
            if self.is_current:
                self.size = size

    def hint(self, start: int, end: int, stable: int) -> None:
        """What another broker knows of the log."""
        if end > self.end:
            self.end = end
            self.is_current = False
        self.stable = max(self.stable, min(stable, self.end))
        self.trim(start)

    def known_producers(self) -> dict[int, Producer]:
        """By producer id: as the database had them, and this broker's own ones that are newer. Of the same
        age, the database is right: another broker may have ended a transaction in between, and then this one
        does not know where the next began."""
        known = dict(self.observed_producers)
        for id, own in () if self._producers is None else self._producers.active().items():
            observed = known.get(id)
            if observed is None or _age(own) > _age(observed):
                known[id] = own
        return known

    def drop(self, base: int) -> int:
        """Drop the oldest batch in memory if it begins at `base`; returns its bytes."""
        return self.drop_below(base + 1) if self._batches and self.tail_start == base else 0

    def drop_below(self, offset: int) -> int:
        """Drop the batches in memory that begin before `offset`; returns their bytes."""
        dropped = 0
        while self._batches and self._batches[0].header.base_offset < offset:
            dropped += self._batches.popleft().header.length
        if not self._batches:
            self._batches = None
        return dropped

    def _drop_all(self) -> int:
        return self.drop_below(self.tail_end)

    def tail_from(self, offset: int) -> Iterator[TailBatch]:
        """Batches in memory from the one that holds `offset` on; `offset` is not below `tail_start`."""
        batches = self._batches or ()
        first = bisect_right(batches, offset, key=lambda batch: batch.header.base_offset) - 1
        for number in range(max(first, 0), len(batches)):
            yield batches[number]


def _age(producer: Producer) -> tuple[int, int, bool]:
    """Of the same batches, that state is newer in which the transaction has ended."""
    last = producer.batches[-1].base_offset if producer.batches else -1
    return producer.epoch, last, producer.open_since == NOT_OPEN


_TIDY_AT_LEAST = 1000


class Tails:
    """The memory for the newest batches of all logs: the oldest are dropped first."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._order: deque[tuple[SharedLog, int]] = deque()
        """Logs and bases of the batches, oldest first; also of some that were forgotten."""
        self._tidy_at = _TIDY_AT_LEAST
        """The length from which on forgotten batches are taken out of the order."""

    @property
    def bytes(self) -> int:
        return self._bytes

    def add(self, log: SharedLog, batch: TailBatch, first_open: int | None = None) -> None:
        dropped = log.append(batch, first_open)
        self._order.append((log, batch.header.base_offset))
        self._bytes += batch.header.length
        if dropped:
            self._forgot(dropped)
        while self._bytes > self._max_bytes:
            oldest, base = self._order.popleft()
            self._bytes -= oldest.drop(base)

    def forget_below(self, log: SharedLog, offset: int) -> None:
        self._forgot(log.drop_below(offset))

    def _forgot(self, dropped: int) -> None:
        self._bytes -= dropped
        if len(self._order) > self._tidy_at:
            self._order = deque(each for each in self._order if each[1] >= each[0].tail_start)
            self._tidy_at = max(2 * len(self._order), _TIDY_AT_LEAST)
