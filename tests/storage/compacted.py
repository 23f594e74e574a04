"""Compacted topics for tests: records with keys, transactions, and what readers see of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from posthouse.model.ids import PartitionId
from posthouse.model.topics import Topic
from posthouse.records.batch import BatchHeader, iter_headers, parse_header
from posthouse.records.builder import BatchBuilder
from posthouse.records.compression import Codec
from posthouse.records.control import build_marker, is_commit
from posthouse.records.record import Record, iter_records
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Append
from tests.storage.batches import make_topic

COMPACT = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0"}


def compacted_topic(**overrides: str) -> Topic:
    """Compaction is due as soon as there is anything to compact."""
    return make_topic("orders", 1, id=None, **COMPACT | overrides)


Pair = tuple[bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class Writer:
    """A producer's place in its sequence; without one, batches are of nobody."""

    id: int
    sequence: int
    transactional: bool = True


def put(
    partition: PartitionId,
    *pairs: Pair,
    timestamp: int = 1000,
    codec: Codec = Codec.NONE,
    writer: Writer | None = None,
) -> Append:
    builder = BatchBuilder(codec)
    if writer is not None:
        builder = BatchBuilder(
            codec,
            producer_id=writer.id,
            producer_epoch=0,
            base_sequence=writer.sequence,
            transactional=writer.transactional,
        )
    for number, (key, value) in enumerate(pairs):
        builder.add(key, value, [("h", b"%d" % number)] if number % 2 else (), timestamp + number)
    batch = builder.build()
    return Append(partition, memoryview(batch), parse_header(batch))


def marker(partition: PartitionId, producer_id: int, *, commit: bool) -> Append:
    batch = build_marker(producer_id, 0, commit=commit, timestamp=1000)
    return Append(partition, memoryview(batch), parse_header(batch))


async def slices(
    storage: Storage, partition: PartitionId, offset: int | None = None, max_bytes: int = 500
) -> list[bytes]:
    """Everything as a consumer fetches it: the next fetch begins behind the last batch."""
    bounds = storage.bounds(partition)
    offset = bounds.start if offset is None else offset
    found = []
    while offset < bounds.end:
        data = bytes((await storage.read(partition, offset, max_bytes)).data)
        assert data, f"nothing is served at {offset}, though the log ends at {bounds.end}"
        headers = [header for _, header in iter_headers(data)]
        assert headers[0].base_offset <= offset < headers[0].next_offset
        assert sum(header.length for header in headers) == len(data)
        for header, following in pairwise(headers):
            assert following.base_offset == header.next_offset
        offset = headers[-1].next_offset
        found.append(data)
    return found


def batches(data: bytes) -> Iterator[tuple[memoryview, BatchHeader]]:
    for position, header in iter_headers(data):
        yield memoryview(data)[position : position + header.length], header


async def read_records(storage: Storage, partition: PartitionId) -> dict[int, Record]:
    """Everything but markers: what a consumer that reads uncommitted records gets."""
    start = storage.bounds(partition).start
    return {
        record.offset: record
        for data in await slices(storage, partition)
        for batch, header in batches(data)
        if not header.is_control
        for record in iter_records(batch)
        if record.offset >= start
    }


async def read_committed(storage: Storage, partition: PartitionId) -> dict[int, Record]:
    """As a consumer tells aborted records: by the list that comes with each fetch, and by markers."""
    start, stable = storage.bounds(partition).start, storage.bounds(partition).stable
    found: dict[int, Record] = {}
    for data in await slices(storage, partition):
        headers: Sequence[BatchHeader] = [header for _, header in batches(data)]
        listed = storage.aborted(partition, headers[0].base_offset, headers[-1].next_offset)
        waiting = sorted(listed, key=lambda each: each.first_offset)
        aborting: set[int] = set()
        for batch, header in batches(data):
            while waiting and waiting[0].first_offset <= header.last_offset:
                aborting.add(waiting.pop(0).producer_id)
            if header.is_control:
                if not is_commit(batch):
                    aborting.discard(header.producer_id)
                continue
            if header.is_transactional and header.producer_id in aborting:
                continue
            for record in iter_records(batch):
                if start <= record.offset < stable:
                    found[record.offset] = record
    return found
