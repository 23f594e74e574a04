"""Retention of a stream: removes whole segments from its start, by size and age.

As in RabbitMQ, the segment that is written to now stays, however old or large it is. A segment here is not a
file but a stretch of offsets: a number of bytes of messages, counted from the start of the stream.
"""

from collections import deque
from dataclasses import dataclass

from posthouse.broker.queues.definition import QueueDefinition
from posthouse.broker.queues.message import MessageLane
from posthouse.broker.queues.needs import runs_between
from posthouse.storage.contract import Storage

DEFAULT_SEGMENT_BYTES = 500_000_000
_MOST = 1024
"""Neighbours are joined when there are more segments than this."""
_READ_BYTES = 64 * 1024


@dataclass(slots=True)
class _Segment:
    end: int
    size: int
    newest_ms: int


class StreamSegments:
    """Of one stream. Knows nothing where the stream has no limits."""

    def __init__(self, definition: QueueDefinition) -> None:
        self._max_bytes = definition.max_bytes
        self._max_age_ms = definition.max_age_ms
        self._width = max(definition.segment_bytes or DEFAULT_SEGMENT_BYTES, 1)
        self._segments: deque[_Segment] = deque()
        self._size = 0
        self._seen_to = 0

    async def expired_to(self, storage: Storage, lane: MessageLane, now_ms: int) -> int:
        """The first offset that stays."""
        floor = lane.progress.floor
        if self._max_bytes is None and self._max_age_ms is None:
            return floor
        self._seen_to = max(self._seen_to, floor)
        async for position, run in runs_between(storage, lane.log, self._seen_to, lane.end, _READ_BYTES):
            self._seen_to = position + run.count
            self._add(_Segment(self._seen_to, run.size, run.expires_ms))
        while self._segments and self._segments[0].end <= floor:
            self._size -= self._segments.popleft().size
        while len(self._segments) > 1 and self._is_expired(self._segments[0], now_ms):
            segment = self._segments.popleft()
            self._size -= segment.size
            floor = segment.end
        return floor

    def _is_expired(self, segment: _Segment, now_ms: int) -> bool:
        if self._max_bytes is not None and self._size > self._max_bytes:
            return True
        return self._max_age_ms is not None and segment.newest_ms < now_ms - self._max_age_ms

    def _add(self, new: _Segment) -> None:
        self._size += new.size
        last = self._segments[-1] if self._segments else None
        if last is None or last.size >= self._width:
            self._segments.append(new)
            if len(self._segments) > _MOST:
                self._join()
        else:
            last.end, last.size = new.end, last.size + new.size
            last.newest_ms = max(last.newest_ms, new.newest_ms)

    def _join(self) -> None:
        """Join neighbours: memory must not grow with the stream."""
        self._width *= 2
        segments, self._segments, self._size = self._segments, deque(), 0
        for segment in segments:
            self._add(segment)
