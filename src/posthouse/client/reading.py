"""Reading a topic: fetches that yield the broker's bytes, decoded on demand.

Reads committed records: those of aborted transactions are skipped, and reading waits for open transactions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from posthouse.client.cluster import Cluster, TopicInfo
from posthouse.client.errors import ClientError, OffsetGone, RecordsDamaged, refused
from posthouse.client.positions import EARLIEST, LATEST, READ_COMMITTED, list_offsets
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
    """Reads partitions of one topic from `positions` on: up to their present ends, or forever."""

    def __init__(
        self,
        cluster: Cluster,
        info: TopicInfo,
        positions: dict[int, int],
        *,
        follow: bool,
        wait: float = 0.5,
    ) -> None:
        self._cluster = cluster
        self._info = info
        self._wait = wait
        self.positions = positions
        """The next offset of each partition that is still being read."""
        self._ends: dict[int, int] | None = None
        if not follow:
            found = list_offsets(cluster, [(info, list(positions))], LATEST, committed=True)
            self._ends = {index: found[info.name, index] for index in positions}
            self._drop_finished()

    def __iter__(self) -> Iterator[Fetched]:
        fruitless = 0
        while self.positions:
            some = False
            for leader, partitions in self._info.by_leader(self.positions).items():
                for fetched in self._fetch(leader, partitions):
                    some = True
                    yield fetched
            self._drop_finished()
            fruitless = 0 if some or self._ends is None else fruitless + 1
            if fruitless == _FRUITLESS_FETCHES:
                raise self._stuck()

    def _fetch(self, leader: int, partitions: list[int]) -> Iterator[Fetched]:
        wanted = [
            FetchPartition(
                partition=index, fetch_offset=self.positions[index], partition_max_bytes=PARTITION_BYTES
            )
            for index in partitions
        ]
        request = FetchRequest(
            max_wait_ms=int(self._wait * 1000),
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=READ_COMMITTED,
            topics=[FetchTopic(topic_id=self._info.id, partitions=wanted)],
        )
        response = self._cluster.broker(leader).ask(request, FetchResponse, wait=self._wait)
        if response.error_code:
            raise refused(response.error_code, None, self._info.name)
        for topic in response.responses:
            for partition in topic.partitions:
                fetched = self._taken(partition)
                if fetched is not None:
                    yield fetched

    def _taken(self, answer: PartitionData) -> Fetched | None:
        index = answer.partition_index
        first = self.positions[index]
        if answer.error_code:
            self._recover(index, answer)
            return None
        if not answer.records:
            return None
        # The next offset is taken from the headers, so that callers need not decode the records.
        following = first
        for _, header in iter_headers(answer.records):
            if header.is_damage:
                raise damaged(self._info.name, index, max(header.base_offset, first), header.next_offset)
            following = max(following, header.next_offset)
        self.positions[index] = following
        end = None if self._ends is None else self._ends[index]
        aborted = [
            AbortedProducer(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()
        ]
        return Fetched(partition=index, data=answer.records, first=first, end=end, aborted=aborted)

    def _recover(self, index: int, answer: PartitionData) -> None:
        """Retention may remove records during a read: continue with the first one that is left."""
        error = refused(answer.error_code, None, self._info.name)
        if not isinstance(error, OffsetGone):
            raise error
        place = (self._info.name, index)
        start = list_offsets(self._cluster, [(self._info, [index])], EARLIEST)[place]
        if start <= self.positions[index]:
            raise error
        self.positions[index] = start

    def _drop_finished(self) -> None:
        if self._ends is not None:
            ends = self._ends
            self.positions = {index: at for index, at in self.positions.items() if at < ends[index]}

    def _stuck(self) -> ClientError:
        index, offset = next(iter(self.positions.items()))
        return RecordsDamaged(
            f"the broker gives no records of partition {index} from offset {offset} on, though it has some; "
            "find out more with 'posthouse log verify' on its data directory",
            _CORRUPT,
        )
