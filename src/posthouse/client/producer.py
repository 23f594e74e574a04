"""A producer of one topic: records are gathered in one batch per partition, batches are sent in few requests.

Several requests are in flight at once; the broker keeps their order. A failure is raised by the next call, at
the latest by `flush`, and nothing is sent twice.
"""

import time
from collections import deque
from collections.abc import Iterable
from types import TracebackType
from typing import NamedTuple, Self

from posthouse.client.cluster import Cluster, TopicInfo
from posthouse.client.connection import BrokerConnection
from posthouse.client.errors import BadArgument, refused
from posthouse.model.errors import PosthouseError
from posthouse.protocols.kafka.codec.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from posthouse.records.batch import Readable
from posthouse.records.builder import BatchBuilder
from posthouse.records.compression import Codec
from posthouse.records.partitioner import partition_of

BATCH_BYTES = 512 * 1024
REQUEST_BYTES = 4 * 1024 * 1024
REQUESTS_UNDER_WAY = 4
_ALL = -1


class _ProduceRequest(NamedTuple):
    connection: BrokerConnection
    records: int


class Producer:
    def __init__(
        self,
        cluster: Cluster,
        info: TopicInfo,
        *,
        codec: Codec = Codec.NONE,
        acks: int = _ALL,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        if acks not in (_ALL, 1):
            raise BadArgument(f"acks {acks} would hide failures; use -1 or 1")
        self._cluster = cluster
        self._info = info
        self._codec = codec
        self._acks = acks
        self._batch_bytes = batch_bytes
        self._open: dict[int, BatchBuilder] = {}
        self._open_bytes = 0
        # Dedicated connections: answers are read later, so no other caller may read from the same socket.
        self._connections: dict[int, BrokerConnection] = {}
        self._under_way: deque[_ProduceRequest] = deque()
        self._sticky = time.monotonic_ns() % info.partitions
        self.acknowledged = 0
        """Number of acknowledged records."""

    def send(
        self,
        value: Readable | None,
        key: bytes | None = None,
        headers: Iterable[tuple[str, Readable | None]] = (),
        *,
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> None:
        """Queue a record; it is sent when its batch is full, or by `flush`."""
        if partition is None:
            partition = self._sticky if key is None else partition_of(key, self._info.partitions)
        elif not 0 <= partition < self._info.partitions:
            self._info.check_partitions([partition])
        builder = self._open.get(partition) or BatchBuilder(self._codec)
        before = builder.size_estimate
        now = time.time_ns() // 1_000_000 if timestamp is None else timestamp
        try:
            builder.add(key, value, headers, now)
        except PosthouseError as error:
            raise BadArgument(f"a record cannot be sent: {error}") from None
        self._open[partition] = builder
        size = builder.size_estimate
        self._open_bytes += size - before
        if size >= self._batch_bytes or self._open_bytes >= REQUEST_BYTES:
            self._dispatch()

    def flush(self) -> None:
        """Return when the broker has acknowledged all records; raises the broker's error."""
        if self._open:
            self._dispatch()
        while self._under_way:
            self._settle_oldest()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()

    def close(self) -> None:
        """Close the connections; unacknowledged records are dropped."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._under_way.clear()
        self._open.clear()

    def _dispatch(self) -> None:
        """Send every open batch: one is full, and the others share its request."""
        batches, self._open, self._open_bytes = self._open, {}, 0
        # Records without keys stay in one partition for a whole batch and then move on: fewer, larger batches
        # than with a new choice per record.
        self._sticky = (self._sticky + 1) % self._info.partitions
        for leader, partitions in self._info.by_leader(batches).items():
            data = [PartitionProduceData(index=index, records=batches[index].build()) for index in partitions]
            while len(self._under_way) >= REQUESTS_UNDER_WAY:
                self._settle_oldest()
            connection = self._connection(leader)
            connection.send(
                ProduceRequest(
                    acks=self._acks,
                    timeout_ms=int(self._cluster.timeout * 1000),
                    topic_data=[TopicProduceData(topic_id=self._info.id, partition_data=data)],
                )
            )
            records = sum(batches[index].count for index in partitions)
            self._under_way.append(_ProduceRequest(connection, records))

    def _connection(self, leader: int) -> BrokerConnection:
        connection = self._connections.get(leader)
        if connection is None:
            connection = self._connections[leader] = self._cluster.open(leader)
        return connection

    def _settle_oldest(self) -> None:
        request = self._under_way.popleft()
        response = request.connection.receive(ProduceResponse)
        for topic in response.responses:
            for partition in topic.partition_responses:
                if partition.error_code:
                    raise refused(
                        partition.error_code, partition.error_message, self._info.name, needs="write"
                    )
        self.acknowledged += request.records
