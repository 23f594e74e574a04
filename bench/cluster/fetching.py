"""Several consumers at once, in one thread: each reads its partitions from the beginning to the end."""

import selectors
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench import wire
from bench.scale.asking import NotDone
from posthouse.protocols.kafka.codec.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from posthouse.records.batch import iter_headers
from tests.wire.kafka import SIZE, PendingRequest, RequestEncoder

PARTITION_BYTES = 2 << 20
FETCH_BYTES = 8 << 20
WAIT_MS = 500
_PATIENCE = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """One connection."""

    port: int
    topic: bytes
    partitions: Sequence[int]


@dataclass(frozen=True, slots=True)
class Read:
    seconds: float
    bytes: int

    @property
    def mb_per_second(self) -> float:
        return self.bytes / self.seconds / 1e6


def fetch_request(topic: bytes, offsets: dict[int, int]) -> FetchRequest:
    """`offsets` by partition."""
    wanted = [
        FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=PARTITION_BYTES)
        for number, offset in offsets.items()
    ]
    return FetchRequest(
        max_wait_ms=WAIT_MS,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        topics=[FetchTopic(topic_id=topic, partitions=wanted)],
    )


def read_all(consumers: Sequence[Consumer], seconds: float) -> Read:
    """Until each consumer is at the end of its partitions, or the time is over and something was read."""
    with selectors.DefaultSelector() as selector:
        fetchings = [_Fetching(each) for each in consumers]
        try:
            begun = time.perf_counter()
            for each in fetchings:
                selector.register(each.socket, selectors.EVENT_READ, each)
                each.ask()
            left = len(fetchings)
            while left and (
                time.perf_counter() - begun < seconds or not any(each.bytes for each in fetchings)
            ):
                for key, _ in selector.select(_PATIENCE):
                    fetching: _Fetching = key.data
                    if fetching.hear():
                        selector.unregister(fetching.socket)
                        left -= 1
            took = time.perf_counter() - begun
        finally:
            for each in fetchings:
                each.socket.close()
    return Read(took, sum(each.bytes for each in fetchings))


class _Fetching:
    def __init__(self, consumer: Consumer) -> None:
        self.socket = wire.connected(consumer.port)
        self.bytes = 0
        self._topic = consumer.topic
        self._offsets = dict.fromkeys(consumer.partitions, 0)
        self._encoder = RequestEncoder(wire.CLIENT_ID)
        self._pending: PendingRequest | None = None
        self._frame: memoryview | None = None
        self._filled = 0

    def ask(self) -> None:
        chunks, self._pending = self._encoder.encode(fetch_request(self._topic, self._offsets))
        self.socket.sendall(b"".join(chunks))
        self._frame = None

    def hear(self) -> bool:
        """One read of the socket. True when the consumer is at the end of all partitions."""
        if self._frame is None:
            size = self.socket.recv(SIZE.size)
            if len(size) < SIZE.size:
                raise ConnectionError("the broker has closed the connection")
            self._frame, self._filled = memoryview(bytearray(SIZE.unpack(size)[0])), 0
        received = self.socket.recv_into(self._frame[self._filled :])
        if not received:
            raise ConnectionError("the broker has closed the connection")
        self._filled += received
        if self._filled < len(self._frame):
            return False
        assert self._pending is not None
        partitions = self._pending.response(self._frame, FetchResponse).responses[0].partitions
        for each in partitions:
            self._take(each)
        if all(self._offsets[each.partition_index] >= each.high_watermark for each in partitions):
            return True
        self.ask()
        return False

    def _take(self, found: PartitionData) -> None:
        if found.error_code:
            raise NotDone(f"a fetch failed with code {found.error_code}")
        records = found.records or b""
        self.bytes += len(records)
        for _, header in iter_headers(records):
            self._offsets[found.partition_index] = header.next_offset
