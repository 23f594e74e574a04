"""Readers: fetching and decoding, and one that follows all partitions over all lives of the broker."""

from random import Random

from posthouse.protocols.kafka.codec.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from posthouse.records.batch import iter_headers
from posthouse.records.record import iter_records
from posthouse.records.visibility import AbortedProducer, visible_batches
from tests.checker.history import Assign, Partition, Poll, Watermarks
from tests.protocols.kafka.wire import Wire
from tests.torture.brokers import Addresses
from tests.torture.recording import Recorder
from tests.torture.stream.links import Link, Topics, check, decode_value

_WAIT_MS = 50
_WATERMARKS_EVERY = 8


class Fetching:
    """Positions in some partitions, and what one fetch from there brings."""

    def __init__(self, topics: Topics, positions: dict[Partition, int], *, committed_only: bool) -> None:
        self._topics = topics
        self.positions = positions
        self._committed_only = committed_only
        self.answers: dict[Partition, PartitionData] = {}
        """What the last fetch brought."""

    async def fetch(self, wire: Wire) -> list[tuple[Partition, int, int]]:
        """Partition, offset and value of what is there from the positions on; these move behind it."""
        answer = await wire.ask(self._request(), FetchResponse)
        check(answer.error_code, "Fetch")
        self.answers = {
            (self._topics.name(topic.topic_id), data.partition_index): data
            for topic in answer.responses
            for data in topic.partitions
        }
        for partition, data in self.answers.items():  # before any position moves
            check(data.error_code, f"Fetch of {partition}")
        return [record for partition, data in self.answers.items() for record in self._take(partition, data)]

    def _request(self) -> FetchRequest:
        return FetchRequest(
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=2**20,
            isolation_level=int(self._committed_only),
            topics=[
                FetchTopic(
                    topic_id=self._topics.ids[name],
                    partitions=[
                        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=2**18)
                    ],
                )
                for (name, index), offset in self.positions.items()
            ],
        )

    def _take(self, partition: Partition, data: PartitionData) -> list[tuple[Partition, int, int]]:
        records = data.records or b""
        first = self.positions[partition]
        for _, header in iter_headers(records):
            self.positions[partition] = header.next_offset
        aborted = []
        if self._committed_only:
            aborted = [
                AbortedProducer(each.producer_id, each.first_offset)
                for each in data.aborted_transactions or ()
            ]
        found = []
        for position, header in visible_batches(records, aborted):
            batch = memoryview(records)[position : position + header.length]
            found += [
                (partition, record.offset, decode_value(record.value or b""))
                for record in iter_records(batch)
                if record.offset >= first
            ]
        return found


class Follower:
    """Reads everything there is, on and on. What it has seen must never be gone."""

    def __init__(self, recorder: Recorder, topics: Topics, random: Random, *, committed_only: bool) -> None:
        self._recorder = recorder
        self._process = recorder.process()
        self._committed_only = committed_only
        positions = dict.fromkeys(topics.all(), 0)
        self._fetching = Fetching(topics, positions, committed_only=committed_only)
        self._random = random
        recorder.add(Assign(self._process, recorder.now(), dict(positions)))

    async def live(self, addresses: Addresses) -> None:
        async with Link(addresses) as wire:
            while True:
                invoked = self._recorder.now()
                records = await self._fetching.fetch(wire)
                now = self._recorder.now()
                if records:
                    self._recorder.add(Poll(self._process, invoked, now, self._committed_only, records))
                if self._random.randrange(_WATERMARKS_EVERY) == 0:
                    self._note_watermarks(invoked, now, addresses.broker)

    def _note_watermarks(self, invoked: int, now: int, broker: str) -> None:
        for partition, data in self._fetching.answers.items():
            self._recorder.add(
                Watermarks(
                    self._process,
                    invoked,
                    now,
                    partition,
                    data.log_start_offset,
                    data.last_stable_offset,
                    data.high_watermark,
                    broker,
                )
            )
