"""A stream: a queue that keeps its messages, for any number of consumers that read all of them.

Its reference log is the stream, and a position in it a message's offset: they count up from 0 without gaps.
References carry the time at which they were written, so that storage finds an offset by time. Everything
below the floor of the only lane is gone; only retention moves it.
"""

import logging

from posthouse.broker.queues.log_queue import DeclaredQueue, LogQueue
from posthouse.broker.queues.message import MessageLane
from posthouse.broker.queues.resources import QueueResources
from posthouse.broker.queues.stream_reading import StreamReading
from posthouse.broker.queues.stream_segments import StreamSegments
from posthouse.records.batch import iter_headers

log = logging.getLogger(__name__)


class StreamQueue(LogQueue):
    """Owned by the event loop."""

    def __init__(self, resources: QueueResources, declared: DeclaredQueue) -> None:
        super().__init__(resources, declared)
        self._resources = resources
        self._lane = self.lanes[0]
        self._readings: dict[StreamReading, None] = {}
        self._segments = StreamSegments(declared.definition)

    async def recover(self) -> None:
        """There is nothing to learn before retention looks at it."""

    @property
    def message_count(self) -> int:
        return self._lane.ready

    @property
    def consumer_count(self) -> int:
        return len(self._readings)

    def time_of(self, now_ms: int, expires_in_ms: int | None) -> int:
        """Messages of a stream do not expire: this is when they came."""
        return now_ms

    def arrived(self, lane: MessageLane, count: int, size: int) -> None:
        self.counters.published += count
        for reading in self._readings:
            reading.plan()

    # Where a reader may begin

    @property
    def first(self) -> int:
        return self._lane.progress.floor

    @property
    def next(self) -> int:
        """Behind everything that is there now."""
        return self._lane.end

    async def last(self) -> int:
        """Where what was written last in one piece begins."""
        end = self._lane.end
        if end <= self.first:
            return end
        found = await self._storage.read(self._lane.log, end - 1, 1)
        begins = [header.base_offset for _, header in iter_headers(memoryview(found.data))]
        return max(begins[0] if begins else end, self.first)

    async def at_time(self, time_ms: int) -> int:
        """The first that came at that time or later; behind everything if there is none."""
        found = await self._storage.find_timestamp(self._lane.log, time_ms)
        return self._lane.end if found is None else max(found.offset, self.first)

    async def ago(self, milliseconds: int) -> int:
        return await self.at_time(self._clock.now_ms() - milliseconds)

    # Readers

    def reading(self, start: int) -> StreamReading:
        """From the offset `start` on, or from the first one if that is gone; for one consumer."""
        return StreamReading(self, self._lane, self._resources, max(start, self.first))

    def begin(self, reading: StreamReading) -> None:
        self.touch()
        self._readings[reading] = None

    def end(self, reading: StreamReading) -> None:
        self.touch()
        self._readings.pop(reading, None)

    # Retention

    async def cut(self) -> None:
        """Let go of the segments that are too old or too much, and of memory that no reader uses."""
        for reading in self._readings:
            reading.relax()
        floor = self._lane.progress.floor
        to = await self._segments.expired_to(self._storage, self._lane, self._clock.now_ms())
        if to > floor and not self.is_deleted:
            log.info("%s: messages %d to %d are beyond its retention, and removed", self, floor, to - 1)
            self._lane.progress.settle_range(floor, to)
            self.progressed(self._lane)

    # The end

    def stop(self) -> None:
        self.is_deleted = True

    def cancel_consumers(self) -> None:
        readings, self._readings = self._readings, {}
        for reading in readings:
            reading.cancel()
