"""Reading topics: fetches that yield the broker's bytes, decoded on demand.

Reads committed records: those of aborted transactions are skipped, and reading waits for open transactions.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from posthouse.client.cluster import Cluster, TopicInfo
from posthouse.client.errors import ClientError, OffsetGone, RecordsDamaged, refused
from posthouse.client.positions import EARLIEST, LATEST, READ_COMMITTED, list_offsets
from posthouse.client.topic_partitions import TopicPartition
from posthouse.model.errors import PosthouseError
from posthouse.protocols.kafka.codec.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from posthouse.records.batch import Readable, iter_headers
from posthouse.records.compression import MAX_OUTPUT
from posthouse.records.record import Headers, iter_records
from posthouse.records.visibility import AbortedProducer, visible_batches

PARTITION_BYTES = 1024 * 1024
FETCH_BYTES = 50 * 1024 * 1024
_CORRUPT = 2
_FRUITLESS_FETCHES = 3


class Message(NamedTuple):
    """One record and its position."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Whole batches of one partition, still encoded; `first` and `end` are the requested offsets.

    `data` may contain invisible batches: `visible_batches` and `messages` leave them out.
    """

    partition: int
    data: Readable
    first: int
    end: int | None
    aborted: Sequence[AbortedProducer] = ()
    topic: str = ""

    def messages(self) -> Iterator[Message]:
        """The records from `first` to before `end`; the first and the last batch may exceed this range."""
        index, first, end = self.partition, self.first, self.end
        view = memoryview(self.data)
        try:
            for position, header in visible_batches(view, self.aborted):
                batch = view[position : position + header.length]
                for offset, timestamp, key, value, headers in iter_records(batch, max_output=MAX_OUTPUT):
                    if offset < first:
                        continue
                    if end is not None and offset >= end:
                        return
                    yield Message(index, offset, timestamp, key, value, headers)
        except PosthouseError as error:
            raise RecordsDamaged(
                f"records of partition {index} from offset {first} on cannot be read ({error}); "
                "find out more with 'posthouse log verify' on the broker's data directory",
                _CORRUPT,
            ) from None


def damaged(topic: str, partition: int, first: int, following: int) -> RecordsDamaged:
    """The error for a batch that the broker sends in place of damaged ones."""
    return RecordsDamaged(
        f"offsets {first} to {following - 1} of topic {topic!r}, partition {partition}, are damaged; go on "
        f"with offset {following}, and see 'posthouse log verify' on the broker's data directory for more",
        _CORRUPT,
    )


class Reading:
    """Reads partitions of topics from `positions` on: up to the ends they have now, or without end."""

    def __init__(
        self,
        cluster: Cluster,
        infos: Iterable[TopicInfo],
        positions: Mapping[TopicPartition, int],
        *,
        follow: bool,
        wait: float = 0.5,
    ) -> None:
        self._cluster = cluster
        self._infos = {info.name: info for info in infos}
        self._names = {info.id: info.name for info in self._infos.values()}
        self._wait = wait
        self.positions = dict(positions)
        """The next offset of each partition that is still being read."""
        self._ends: dict[TopicPartition, int] | None = None
        if not follow:
            found = list_offsets(cluster, self._by_topic(), LATEST, committed=True)
            self._ends = {place: found[place] for place in self.positions}
            self._drop_finished()

    def __iter__(self) -> Iterator[Fetched]:
        fruitless = 0
        while self.positions:
            some = False
            for fetched in self.poll():
                some = True
                yield fetched
            fruitless = 0 if some or self._ends is None else fruitless + 1
            if fruitless == _FRUITLESS_FETCHES and self.positions:
                raise self._stuck()

    def poll(self) -> Iterator[Fetched]:
        """What one round of fetches finds."""
        for leader, topics in self._by_leader().items():
            yield from self._fetch(leader, topics)
        self._drop_finished()

    def _by_topic(self) -> list[tuple[TopicInfo, list[int]]]:
        grouped: dict[str, list[int]] = {}
        for place in self.positions:
            grouped.setdefault(place.topic, []).append(place.partition)
        return [(self._infos[name], indexes) for name, indexes in grouped.items()]

    def _by_leader(self) -> dict[int, list[tuple[TopicInfo, list[int]]]]:
        grouped: dict[int, list[tuple[TopicInfo, list[int]]]] = {}
        for info, indexes in self._by_topic():
            for leader, led in info.by_leader(indexes).items():
                grouped.setdefault(leader, []).append((info, led))
        return grouped

    def _fetch(self, leader: int, topics: list[tuple[TopicInfo, list[int]]]) -> Iterator[Fetched]:
        request = FetchRequest(
            max_wait_ms=int(self._wait * 1000),
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=READ_COMMITTED,
            topics=[self._wanted(info, indexes) for info, indexes in topics],
        )
        response = self._cluster.broker(leader).ask(request, FetchResponse, wait=self._wait)
        if response.error_code:
            raise refused(response.error_code, None, topics[0][0].name)
        for topic in response.responses:
            for partition in topic.partitions:
                place = TopicPartition(self._names[topic.topic_id], partition.partition_index)
                fetched = self._taken(place, partition)
                if fetched is not None:
                    yield fetched

    def _wanted(self, info: TopicInfo, indexes: Iterable[int]) -> FetchTopic:
        partitions = [
            FetchPartition(
                partition=index,
                fetch_offset=self.positions[TopicPartition(info.name, index)],
                partition_max_bytes=PARTITION_BYTES,
            )
            for index in indexes
        ]
        return FetchTopic(topic_id=info.id, partitions=partitions)

    def _taken(self, place: TopicPartition, answer: PartitionData) -> Fetched | None:
        first = self.positions[place]
        if answer.error_code:
            self._recover(place, answer)
            return None
        if not answer.records:
            return None
        # The next offset comes from the headers alone: records are decoded only by those who need them.
        following = first
        for _, header in iter_headers(answer.records):
            if header.is_damage:
                start = max(header.base_offset, first)
                raise damaged(place.topic, place.partition, start, header.next_offset)
            following = max(following, header.next_offset)
        self.positions[place] = following
        end = None if self._ends is None else self._ends[place]
        aborted = [
            AbortedProducer(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()
        ]
        return Fetched(
            topic=place.topic,
            partition=place.partition,
            data=answer.records,
            first=first,
            end=end,
            aborted=aborted,
        )

    def _recover(self, place: TopicPartition, answer: PartitionData) -> None:
        """Records may be deleted while we read: continue with the first that is left."""
        error = refused(answer.error_code, None, place.topic, needs="read")
        if not isinstance(error, OffsetGone):
            raise error
        info = self._infos[place.topic]
        start = list_offsets(self._cluster, [(info, [place.partition])], EARLIEST)[place]
        if start <= self.positions[place]:
            raise error
        self.positions[place] = start

    def _drop_finished(self) -> None:
        if self._ends is not None:
            ends = self._ends
            self.positions = {place: at for place, at in self.positions.items() if at < ends[place]}

    def _stuck(self) -> ClientError:
        place, offset = next(iter(self.positions.items()))
        return RecordsDamaged(
            f"the broker gives no records of partition {place.partition} of topic {place.topic!r} from "
            f"offset {offset} on, though it has some; find out more with 'posthouse log verify' on its data "
            "directory",
            _CORRUPT,
        )
