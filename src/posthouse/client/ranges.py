"""Fast reading of one range of offsets of one partition.

The next fetch is in flight while the caller processes the last one.
"""

from collections.abc import Iterator, Sequence

from posthouse.client.cluster import Cluster, TopicInfo
from posthouse.client.connection import BrokerConnection
from posthouse.client.errors import RecordsDamaged, refused
from posthouse.client.positions import READ_COMMITTED, READ_UNCOMMITTED
from posthouse.client.reading import Fetched, damaged
from posthouse.client.spans import Span, SpanFetches
from posthouse.protocols.kafka.codec.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from posthouse.records.batch import iter_headers
from posthouse.records.visibility import AbortedProducer

FETCH_BYTES = 4 * 1024 * 1024
_WAIT = 0.5
_FRUITLESS_FETCHES = 10
_CORRUPT = 2


class RangeReading:
    """Offsets from `first` to before `end`. Uncommitted records are left out by default. With `spans` only
    these parts are fetched, and the rest of their batches.

    Raises OffsetGone if the log starts behind the position, or ends before it.
    """

    def __init__(
        self,
        cluster: Cluster,
        info: TopicInfo,
        partition: int,
        first: int,
        end: int,
        *,
        committed: bool = True,
        fetch_bytes: int = FETCH_BYTES,
        spans: Sequence[Span] | None = None,
    ) -> None:
        self._cluster = cluster
        self.info = info
        self._partition = partition
        self._end = end
        self._committed = committed
        self._fetch_bytes = fetch_bytes
        self._spans = None if spans is None else SpanFetches(_within(spans, first, end), end, fetch_bytes)
        self.position = first
        """All offsets before it have been yielded."""

    def __iter__(self) -> Iterator[Fetched]:
        if self.position >= self._end:
            return
        # A dedicated connection, because a request is in flight if the caller stops half-way.
        connection = self._cluster.open(self.info.leaders[self._partition])
        try:
            yield from self._read(connection)
        finally:
            connection.close()

    def _read(self, connection: BrokerConnection) -> Iterator[Fetched]:
        fruitless = 0
        next_fetch = self._following(self.position)
        if next_fetch >= self._end:
            self.position = self._end
            return
        self._ask(connection, next_fetch)
        while self.position < self._end:
            answer = self._answer(connection)
            if answer.error_code:
                raise refused(answer.error_code, None, self.info.name)
            first = next_fetch
            for _, header in iter_headers(answer.records or b""):
                if header.is_damage:
                    raise damaged(self.info.name, self._partition, first, header.next_offset)
                next_fetch = max(next_fetch, header.next_offset)
            next_fetch = self._following(next_fetch)
            if next_fetch < self._end:
                self._ask(connection, next_fetch)
            if answer.records:
                fruitless = 0
                yield self._fetched(answer, first)
                self.position = next_fetch
            else:
                fruitless += 1
                if fruitless == _FRUITLESS_FETCHES:
                    raise self._stuck()

    def _following(self, offset: int) -> int:
        return offset if self._spans is None else self._spans.following(offset)

    def _ask(self, connection: BrokerConnection, offset: int) -> None:
        size = self._fetch_bytes if self._spans is None else self._spans.size(offset)
        wanted = FetchPartition(partition=self._partition, fetch_offset=offset, partition_max_bytes=size)
        connection.send(
            FetchRequest(
                max_wait_ms=int(_WAIT * 1000),
                min_bytes=1,
                max_bytes=size,
                isolation_level=READ_COMMITTED if self._committed else READ_UNCOMMITTED,
                topics=[FetchTopic(topic_id=self.info.id, partitions=[wanted])],
            )
        )

    def _answer(self, connection: BrokerConnection) -> PartitionData:
        response = connection.receive(FetchResponse, wait=_WAIT)
        if response.error_code:
            raise refused(response.error_code, None, self.info.name)
        return response.responses[0].partitions[0]

    def _fetched(self, answer: PartitionData, first: int) -> Fetched:
        aborted = [
            AbortedProducer(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()
        ]
        return Fetched(
            topic=self.info.name,
            partition=self._partition,
            data=answer.records or b"",
            first=first,
            end=self._end,
            aborted=aborted,
        )

    def _stuck(self) -> RecordsDamaged:
        return RecordsDamaged(
            f"the broker gives no records of topic {self.info.name!r}, partition {self._partition}, from "
            f"offset {self.position} on, though there should be some up to {self._end}; find out more with "
            "'posthouse log verify' on its data directory",
            _CORRUPT,
        )


def _within(spans: Sequence[Span], first: int, end: int) -> list[Span]:
    parts = [Span(max(each.first, first), min(each.end, end)) for each in spans]
    return [each for each in parts if each.first < each.end]
