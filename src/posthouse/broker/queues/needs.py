"""Which records the messages of a lane lie in, told in few words however long the lane is.

References are read once, when the lane has grown; those that the floor has passed by then, never. What they
say is kept in spans of positions: one run of references if there are few runs, many runs together if there
are many. A span of many knows the lowest offset in each partition, which may belong to a message that is
settled by now. So when the floor comes to lie in one, that one alone is read again and told in detail.

What this says is never too high: more may be kept than must be, and nothing goes too early.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass

from posthouse.model.ids import PartitionId
from posthouse.records.batch import iter_headers
from posthouse.records.references import Reference, iter_references
from posthouse.storage.contract import Storage

SPANS = 64
"""Many spans are joined until there are no more than this."""
_READ_BYTES = 16 * 1024
_DETAIL_BYTES = 8 * 1024
"""Of a span that is read again, which is often short."""


@dataclass(slots=True)
class NeededSpan:
    first: int
    end: int
    lowest: dict[PartitionId, int]
    size: int
    """Bytes of the values of its messages."""
    is_run: bool = True
    """One partition only, and each message one offset after the one before."""

    def is_followed_by(self, position: int, run: Reference) -> bool:
        if not self.is_run or position != self.end:
            return False
        offset = self.lowest.get(run.partition)
        return offset is not None and offset + self.end - self.first == run.first

    def is_rough(self, floor: int) -> bool:
        """Whether its lowest offsets may be those of messages below the floor."""
        return self.first < floor and not self.is_run

    def join(self, other: "NeededSpan") -> None:
        self.is_run = False
        self.end = other.end
        self.size += other.size
        for partition, offset in other.lowest.items():
            self.lowest[partition] = min(offset, self.lowest.get(partition, offset))


class Outline:
    """Spans in the order of positions, not many."""

    def __init__(self) -> None:
        self.spans: list[NeededSpan] = []
        self._width = 1
        """Neighbours are joined up to this many positions."""

    def add(self, position: int, run: Reference) -> None:
        last = self.spans[-1] if self.spans else None
        if last is not None and last.is_followed_by(position, run):
            last.end += run.count
            last.size += run.size
            return
        self._append(
            self.spans, NeededSpan(position, position + run.count, {run.partition: run.first}, run.size)
        )
        while len(self.spans) > 2 * SPANS:
            self._width *= 2
            joined: list[NeededSpan] = []
            for span in self.spans:
                self._append(joined, span)
            self.spans = joined

    def _append(self, spans: list[NeededSpan], span: NeededSpan) -> None:
        if spans and span.end - spans[-1].first <= self._width:
            spans[-1].join(span)
        else:
            spans.append(span)

    def drop_below(self, floor: int) -> None:
        self.spans = [span for span in self.spans if span.end > floor]
        if not self.spans:
            self._width = 1


class LaneNeeds:
    """Of one lane. Owned by the event loop."""

    def __init__(self) -> None:
        self._near: list[NeededSpan] = []
        """In detail what was one span of `_far`."""
        self._far = Outline()
        self._seen_to = 0

    async def follow(self, storage: Storage, log: PartitionId, floor: int) -> None:
        """Learn of everything that is in the lane's log by now, from its floor on."""
        self._near = [span for span in self._near if span.end > floor]
        self._far.drop_below(floor)
        self._seen_to = max(self._seen_to, floor)
        end = storage.bounds(log).end
        async for position, run in runs_between(storage, log, self._seen_to, end, _READ_BYTES):
            self._far.add(position, run)
            self._seen_to = position + run.count
        self._seen_to = end
        if not self._near and self._far.spans and self._far.spans[0].is_rough(floor):
            self._near = [self._far.spans.pop(0)]
        while self._near and self._near[0].is_rough(floor):
            detail = Outline()
            async for position, run in runs_between(storage, log, floor, self._near[0].end, _DETAIL_BYTES):
                detail.add(position, run)
            self._near[:1] = detail.spans

    def _spans(self) -> Iterator[NeededSpan]:
        yield from self._near
        yield from self._far.spans

    def lowest(self, floor: int) -> dict[PartitionId, int]:
        """The first offset of each partition that a message from `floor` on lies in, or a lower one."""
        lowest: dict[PartitionId, int] = {}
        for span in self._spans():
            passed = max(floor - span.first, 0) if span.is_run else 0
            for partition, offset in span.lowest.items():
                offset += passed
                if offset < lowest.get(partition, offset + 1):
                    lowest[partition] = offset
        return lowest

    def size(self, first: int, end: int) -> int:
        """Bytes of the messages from `first` to before `end`, settled or not."""
        total = 0
        for span in self._spans():
            shared = min(span.end, end) - max(span.first, first)
            if shared > 0:
                total += span.size * shared // (span.end - span.first)
        return total

    def end_of(self, below: Mapping[PartitionId, int]) -> int:
        """Behind the last message that may lie below one of these offsets; 0 if none does."""
        end = 0
        for span in self._spans():
            for partition, offset in span.lowest.items():
                over = below.get(partition, 0) - offset
                if over > 0:
                    end = max(end, min(span.first + over, span.end) if span.is_run else span.end)
        return end


async def runs_between(
    storage: Storage, log: PartitionId, start: int, end: int, read_bytes: int
) -> AsyncIterator[tuple[int, Reference]]:
    """The references from `start` to before `end`, each run with its position."""
    while start < end:
        found = await storage.read(log, start, read_bytes)
        if not found.data:
            return
        view = memoryview(found.data)
        first = start
        for place, header in iter_headers(view):
            for position, run in iter_references(view[place : place + header.length], header):
                passed = max(first - position, 0)
                count = min(run.count, end - position) - passed
                if count > 0:
                    size = run.size * count // run.count
                    yield position + passed, run._replace(first=run.first + passed, count=count, size=size)
            start = header.next_offset
        await asyncio.sleep(0)  # what is in memory is read without waiting, and others want their turn
