"""A stream: a queue that keeps its messages, for any number of consumers that read all of them.

Its reference log is the stream, and a position in it a message's offset: they count up from 0 without gaps.
References carry the time at which they were written, so that storage finds an offset by time. Everything
below the floor of the only lane is gone; only retention moves it.
"""

import logging
from collections.abc import AsyncGenerator, Sequence

from posthouse.broker.queues.browsing import ready_messages
from posthouse.broker.queues.consumer_info import ConsumerInfo
from posthouse.broker.queues.log_queue import DeclaredQueue, LogQueue
from posthouse.broker.queues.message import Message, MessageLane
from posthouse.broker.queues.resources import QueueResources
from posthouse.broker.queues.stream_reading import StreamReading
from posthouse.broker.queues.stream_segments import StreamSegments
from posthouse.records.batch import iter_headers
from posthouse.storage.operations import Run

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
        """Nothing to read before retention runs."""

    @property
    def message_count(self) -> int:
        return self._lane.ready

    @property
    def leased_count(self) -> int:
        """Nothing is leased: consumers read on their own."""
        return 0

    @property
    def lengths(self) -> tuple[int, int]:
        return self._lane.ready, 0

    @property
    def consumer_count(self) -> int:
        return len(self._readings)

    def lane_for(self, priority: int) -> MessageLane:
        return self._lane  # streams have no priorities

    def time_of(self, now_ms: int, expires_in_ms: int | None) -> int:
        """The time of publishing: messages of a stream do not expire."""
        return now_ms

    def arrived(self, lane: MessageLane, runs: Sequence[Run], count: int, size: int) -> None:
        self.counters.published += count
        for reading in self._readings:
            reading.plan()

    # Where a reader may begin

    @property
    def first(self) -> int:
        return self._lane.progress.floor

    @property
    def next(self) -> int:
        """The offset behind the last message."""
        return self._lane.end

    async def last(self) -> int:
        """The first offset of the last batch."""
        end = self._lane.end
        if end <= self.first:
            return end
        found = await self._storage.read(self._lane.log, end - 1, 1)
        begins = [header.base_offset for _, header in iter_headers(memoryview(found.data))]
        return max(begins[0] if begins else end, self.first)

    async def at_time(self, time_ms: int) -> int:
        """The first offset that was published at that time or later; the end if there is none."""
        found = await self._storage.find_timestamp(self._lane.log, time_ms)
        return self._lane.end if found is None else max(found.offset, self.first)

    async def ago(self, milliseconds: int) -> int:
        return await self.at_time(self._clock.now_ms() - milliseconds)

    # Readers

    def reading(self, start: int) -> StreamReading:
        """A reader for one consumer, from the offset `start`, or from the first if that was removed."""
        return StreamReading(self, self._lane, self._resources, max(start, self.first))

    def begin(self, reading: StreamReading) -> None:
        self.touch()
        self._readings[reading] = None

    def end(self, reading: StreamReading) -> None:
        self.touch()
        self._readings.pop(reading, None)

    def described_consumers(self) -> list[ConsumerInfo]:
        infos = (reading.consumer_info for reading in self._readings)
        return [info for info in infos if info is not None]

    def browse(self, at_once: int) -> AsyncGenerator[list[Message], None]:
        reading = self.reading(self.first)
        return ready_messages(self._storage, self._clock, reading, self.lanes, at_once)

    # Retention

    async def cut(self) -> None:
        """Apply retention by age and size, and free memory that no reader uses."""
        for reading in self._readings:
            reading.relax()
        floor = self._lane.progress.floor
        to = await self._segments.expired_to(self._storage, self._lane, self._clock.now_ms())
        if to > floor and not self.is_stopped:
            log.info("%s: messages %d to %d are beyond its retention, and removed", self, floor, to - 1)
            self._lane.progress.settle_range(floor, to)
            self.progressed(self._lane)

    # The end

    def cancel_consumers(self) -> None:
        readings, self._readings = self._readings, {}
        for reading in readings:
            reading.cancel()
