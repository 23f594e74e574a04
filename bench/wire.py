"""A load generator that is not the bottleneck: requests built beforehand, sent over one raw socket."""

import itertools
import math
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass

from posthouse.protocols.kafka.codec.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from posthouse.protocols.kafka.codec.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from posthouse.protocols.kafka.codec.primitives import Message
from posthouse.records.builder import BatchBuilder
from tests.wire.kafka import SIZE, PendingRequest, RequestEncoder

CLIENT_ID = "bench"
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Load:
    seconds: float
    bytes: int
    latencies: list[float]

    @property
    def mb_per_second(self) -> float:
        return self.bytes / self.seconds / 1e6

    def percentile(self, share: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def batch(record_bytes: int, size: int) -> bytearray:
    """Records of random bytes, so that nothing on the way can shrink them."""
    builder = BatchBuilder()
    now = time.time_ns() // 1_000_000
    while builder.count == 0 or builder.size_estimate + record_bytes < size:
        builder.add(None, os.urandom(record_bytes), (), now)
    return builder.build()


def frame(request: Message) -> bytes:
    """A request, which may be sent again and again: responses are counted, correlation ids ignored."""
    return _encoded(request)[0]


def topic_id(port: int, topic: str, host: str = LOOPBACK) -> bytes:
    request, pending = _encoded(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]))
    with socket.create_connection((host, port)) as connection:
        connection.sendall(request)
        data = memoryview(_receive_frame(connection))
    return pending.response(data, MetadataResponse).topics[0].topic_id


def _encoded(request: Message) -> tuple[bytes, PendingRequest]:
    chunks, pending = RequestEncoder(CLIENT_ID).encode(request)
    return b"".join(chunks), pending


def produce_frame(topic: bytes, partition: int, records: bytearray) -> bytes:
    data = PartitionProduceData(index=partition, records=memoryview(records))
    topics = [TopicProduceData(topic_id=topic, partition_data=[data])]
    return frame(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics))


def connected(port: int, host: str = LOOPBACK) -> socket.socket:
    connection = socket.create_connection((host, port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def push(
    port: int,
    frames: Sequence[bytes],
    total_bytes: float,
    window: int,
    *,
    seconds: float = math.inf,
    host: str = LOOPBACK,
) -> Load:
    """Send the frames round and round until `total_bytes` or `seconds`, never with more than `window`
    unanswered."""
    latencies: list[float] = []
    sent_at: list[float] = []
    with connected(port, host) as connection:
        answers = Answers(connection)
        begun = time.perf_counter()
        sent = 0
        for each in itertools.cycle(frames):
            if sent >= total_bytes or time.perf_counter() - begun >= seconds:
                break
            while len(sent_at) - len(latencies) >= window:
                _note(latencies, sent_at, answers.wait())
            sent_at.append(time.perf_counter())
            connection.sendall(each)
            sent += len(each)
        while len(latencies) < len(sent_at):
            _note(latencies, sent_at, answers.wait())
        return Load(time.perf_counter() - begun, sent, latencies)


def _note(latencies: list[float], sent_at: list[float], answered: int) -> None:
    now = time.perf_counter()
    latencies.extend(now - sent_at[len(latencies)] for _ in range(answered))


class Answers:
    """Counts response frames without looking into them."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = bytearray()

    def wait(self) -> int:
        """Until at least one came."""
        count = 0
        while count == 0:
            count = self.receive()
        return count

    def receive(self) -> int:
        """Those that are whole after one read of the socket."""
        received = self._connection.recv(65536)
        if not received:
            raise ConnectionError("the server has closed the connection")
        self._buffer += received
        count = position = 0
        while len(self._buffer) - position >= 4:
            length = int.from_bytes(self._buffer[position : position + 4], "big")
            if len(self._buffer) - position - 4 < length:
                break
            position += 4 + length
            count += 1
        del self._buffer[:position]
        return count


def _receive_frame(connection: socket.socket) -> bytes:
    with connection.makefile("rb") as stream:
        (size,) = SIZE.unpack(stream.read(SIZE.size))
        return stream.read(size)
