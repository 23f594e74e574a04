"""Sends ready-made batches to partitions of several topics, and resends them after a lost connection.

Few requests carry many batches, and several are in flight at once; the broker keeps their order. Batches that
were not acknowledged when a connection broke are sent again, in the same order. Batches with a producer id
and sequence are still stored only once; others may be duplicated.
"""

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from posthouse.client.backoff import PASSING_CODES, RETRY_SECONDS, Backoff
from posthouse.client.cluster import Cluster, TopicInfo
from posthouse.client.connection import BrokerConnection
from posthouse.client.errors import BrokerUnreachable, ProducerFenced, RequestRefused, refused
from posthouse.protocols.kafka.codec.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from posthouse.protocols.kafka.codec.primitives import Buffer

REQUEST_BYTES = 4 * 1024 * 1024
REQUESTS_UNDER_WAY = 5
"""A request has one batch of a partition, and the broker detects duplicates of a producer's last five."""
_ALL = -1


class _Place(NamedTuple):
    topic: bytes
    partition: int


@dataclass(slots=True)
class _BatchRequest:
    leader: int
    unconfirmed: dict[_Place, Buffer]


class BatchSender:
    def __init__(
        self, cluster: Cluster, *, transactional_id: str | None = None, patience: float = RETRY_SECONDS
    ) -> None:
        self._cluster = cluster
        self._transactional_id = transactional_id
        self._backoff = Backoff(patience)
        self._names: dict[bytes, str] = {}
        self._gathered: dict[int, dict[_Place, Buffer]] = {}
        """Batches of the next request, by leader."""
        self._gathered_bytes = 0
        self._under_way: deque[_BatchRequest] = deque()
        # Dedicated connections: answers are read later, so no other caller may read from the same socket.
        self._connections: dict[int, BrokerConnection] = {}

    def send(self, info: TopicInfo, partition: int, batch: Buffer) -> None:
        """Queue a batch; a failure is raised by a later call, at the latest by `flush`."""
        self._names[info.id] = info.name
        gathered = self._gathered.setdefault(info.leaders[partition], {})
        place = _Place(info.id, partition)
        if place in gathered:
            self._dispatch()
            gathered = self._gathered.setdefault(info.leaders[partition], {})
        gathered[place] = batch
        self._gathered_bytes += len(batch)
        if self._gathered_bytes >= REQUEST_BYTES:
            self._dispatch()

    def flush(self) -> None:
        """Return when the broker has acknowledged everything; raises the broker's error."""
        self._dispatch()
        while self._under_way:
            self._settle_oldest()

    def close(self) -> None:
        """Close the connections; unacknowledged batches are dropped."""
        self._disconnect()
        self._under_way.clear()
        self._gathered.clear()

    def _dispatch(self) -> None:
        gathered, self._gathered, self._gathered_bytes = self._gathered, {}, 0
        for leader, batches in gathered.items():
            while len(self._under_way) >= REQUESTS_UNDER_WAY:
                self._settle_oldest()
            request = _BatchRequest(leader, batches)
            if not self._under_way:
                self._backoff.renew()  # time without anything to send does not count
            self._under_way.append(request)
            try:
                self._transmit(request)
            except BrokerUnreachable as error:
                self._begin_again(error)

    def _transmit(self, request: _BatchRequest) -> None:
        topics: dict[bytes, list[PartitionProduceData]] = {}
        for place, batch in request.unconfirmed.items():
            data = PartitionProduceData(index=place.partition, records=batch)
            topics.setdefault(place.topic, []).append(data)
        self._connection(request.leader).send(
            ProduceRequest(
                transactional_id=self._transactional_id,
                acks=_ALL,
                timeout_ms=int(self._cluster.timeout * 1000),
                topic_data=[
                    TopicProduceData(topic_id=topic, partition_data=data) for topic, data in topics.items()
                ],
            )
        )

    def _settle_oldest(self) -> None:
        request = self._under_way[0]
        try:
            response = self._connection(request.leader).receive(ProduceResponse)
        except BrokerUnreachable as error:
            self._begin_again(error)
            return
        failure = self._confirm(request, response)
        if failure is not None:
            self._begin_again(failure)
            return
        self._under_way.popleft()
        self._backoff.renew()

    def _confirm(self, request: _BatchRequest, response: ProduceResponse) -> RequestRefused | None:
        """Process an answer. A retriable error is returned, any other is raised."""
        failure = None
        for topic in response.responses:
            for partition in topic.partition_responses:
                code = partition.error_code
                if not code:
                    request.unconfirmed.pop(_Place(topic.topic_id, partition.index), None)
                    continue
                error = refused(code, partition.error_message, self._names.get(topic.topic_id, "?"))
                if isinstance(error, ProducerFenced):
                    error = refused(code, partition.error_message, self._transactional_id or "?")
                if code not in PASSING_CODES:
                    raise error
                failure = error
        return failure

    def _begin_again(self, error: BrokerUnreachable | RequestRefused) -> None:
        """Reconnect and send all unacknowledged batches, in order.

        Also if the connection is intact: batches behind a failed one are refused as out of order.
        """
        while True:
            self._disconnect()
            self._backoff.pause(error)
            try:
                for request in self._under_way:
                    self._transmit(request)
            except BrokerUnreachable as another:
                error = another
            else:
                return

    def _connection(self, leader: int) -> BrokerConnection:
        connection = self._connections.get(leader)
        if connection is None:
            connection = self._connections[leader] = self._cluster.open(leader)
        return connection

    def _disconnect(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._cluster.close()
