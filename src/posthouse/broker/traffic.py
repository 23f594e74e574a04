"""Records and bytes that went into and out of each topic since the broker started, by all protocols.

Plain ints that are incremented in place, once for a batch, a fetch or a delivery.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any, Final, Protocol

from posthouse.records.batch import COUNT_AT, HEADER_SIZE, LENGTH_AT, LOG_OVERHEAD, BatchHeader, Readable

_LENGTH_AND_COUNT = Struct(f">{LENGTH_AT}xi{COUNT_AT - LENGTH_AT - 4}xi")
_COUNTED_BATCHES = 16
"""Batches of one read whose records are counted one by one; the rest of the read is estimated by its bytes. A
read of a megabyte may have ten thousand batches, and counting them would take longer than reading them: 16
take 2 µs."""


class TopicTraffic:
    """Of one topic. Bytes are those of stored batches; in deliveries of queues, those of values."""

    __slots__ = ("bytes_in", "bytes_out", "records_in", "records_out", "records_passed_over")

    def __init__(self) -> None:
        self.records_in = 0
        self.bytes_in = 0
        self.records_out = 0
        self.bytes_out = 0
        self.records_passed_over = 0
        """By consumers with a filter, though others of their group have asked for them."""


_NO_TRAFFIC: Final = TopicTraffic()
"""Shared by all topics without traffic: a collection of metrics looks at each of them."""


class CountedMessage(Protocol):
    @property
    def topic(self) -> str: ...

    @property
    def size(self) -> int:
        """Bytes of the value."""


class Traffic(dict[str, TopicTraffic]):
    """By the name of the topic. Owned by the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self._writing: deque[tuple[asyncio.Future[Any], TopicTraffic, int, int]] = deque()
        """Commits, and the records and bytes that count once they are durable. Commits end in their order."""

    def __missing__(self, topic: str) -> TopicTraffic:
        self[topic] = created = TopicTraffic()
        return created

    def of(self, topic: str) -> TopicTraffic:
        """For readers: zeros where there was no traffic."""
        if self._writing:
            self._count_written()
        return self.get(topic, _NO_TRAFFIC)

    def counted(self) -> Iterable[tuple[str, TopicTraffic]]:
        """For readers: all topics that had traffic."""
        self._count_written()
        return self.items()

    def write(self, topic: str, header: BatchHeader, commit: asyncio.Future[Any]) -> None:
        """A batch is being written. It counts when its commit has succeeded.

        Commits that have ended are looked at here and by readers: a callback of each commit would cost an
        iteration of the event loop.
        """
        writing = self._writing
        writing.append((commit, self[topic], header.count, header.length))
        if writing[0][0].done():
            self._count_written()

    def _count_written(self) -> None:
        writing = self._writing
        while writing and (commit := writing[0][0]).done():
            _, traffic, records, size = writing.popleft()
            if not commit.cancelled() and commit.exception() is None:
                traffic.records_in += records
                traffic.bytes_in += size

    def read(self, topic: str, batches: Readable) -> None:
        """Whole batches go to a client."""
        traffic = self[topic]
        traffic.records_out += count_records(batches)
        traffic.bytes_out += len(batches)

    def deliver(self, messages: Sequence[CountedMessage]) -> int:
        """Messages of a queue go to a client; returns the bytes of their values."""
        # One loop with little in it: this runs for every message that is delivered. Nearly always all are of
        # one topic, whose name is then one object.
        size = 0
        is_mixed = False
        name = messages[0].topic
        for message in messages:
            size += message.size
            if message.topic is not name:
                is_mixed = True
        if is_mixed:
            for message in messages:
                traffic = self[message.topic]
                traffic.records_out += 1
                traffic.bytes_out += message.size
        else:
            traffic = self[name]
            traffic.records_out += len(messages)
            traffic.bytes_out += size
        return size

    def forget(self, topics: Iterable[str]) -> None:
        for topic in topics:
            self.pop(topic, None)


def count_records(batches: Readable) -> int:
    """Records of whole batches; estimated for those behind the first `_COUNTED_BATCHES`."""
    end = len(batches)
    length: int
    records: int
    count = position = counted = 0
    while end - position >= HEADER_SIZE:
        length, records = _LENGTH_AND_COUNT.unpack_from(batches, position)
        count += records
        position += length + LOG_OVERHEAD
        counted += 1
        if counted == _COUNTED_BATCHES:
            return count * end // position
    return count
