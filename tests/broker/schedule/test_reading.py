"""Reading logs piece by piece, with parts of them missing."""

import pytest

from posthouse.broker import stored_records
from posthouse.broker.schedule import reading
from posthouse.broker.schedule.bucket import Bucket
from posthouse.broker.schedule.keys import unpack
from posthouse.broker.schedule.periods import Period
from posthouse.model.clock import ManualClock
from posthouse.model.ids import PartitionId
from posthouse.records.batch import parse_header
from posthouse.records.builder import BatchBuilder
from posthouse.records.raw import NO_HEADERS
from posthouse.storage.memory.engine import MemoryStorage
from posthouse.storage.operations import Append
from tests.storage.batches import make_topic

BATCHES = 10
IN_BATCH = 3
LAST = BATCHES * IN_BATCH - 1


@pytest.fixture
async def log(monkeypatch: pytest.MonkeyPatch) -> tuple[MemoryStorage, PartitionId]:
    """Batches of three; the value of each record is its offset."""
    monkeypatch.setattr(stored_records, "PIECE_BYTES", 250)
    storage, topic = MemoryStorage(ManualClock()), make_topic()
    await storage.create_topics([topic])
    for number in range(BATCHES):
        builder = BatchBuilder()
        for offset in range(number * IN_BATCH, (number + 1) * IN_BATCH):
            builder.add_raw(offset.to_bytes(8, "big"), b"%d" % offset, NO_HEADERS, 1000 - offset)
        batch = memoryview(builder.build())
        await storage.commit([Append(topic.partition(0), batch, parse_header(batch))])
    return storage, topic.partition(0)


def damage(storage: MemoryStorage, partition: PartitionId, *numbers: int) -> None:
    """Batches that cannot be read any more."""
    found = storage._logs[partition]
    for number in sorted(numbers, reverse=True):
        del found.batches[number], found.bases[number]


@pytest.mark.parametrize(
    "offsets", [[0], [LAST], [0, LAST], [4, 5, 6], [1, 10, 11, 12, 28], list(range(LAST + 1))]
)
async def test_records_here_and_there(log: tuple[MemoryStorage, PartitionId], offsets: list[int]) -> None:
    found = await stored_records.read_records(*log, offsets)
    assert {offset: record.value for offset, record in found.items()} == {
        offset: b"%d" % offset for offset in offsets
    }


@pytest.mark.parametrize("damaged", [{0}, {3}, {4, 5}, {8, 9}, set(range(10))])
async def test_records_without_those_that_are_damaged(
    log: tuple[MemoryStorage, PartitionId], damaged: set[int]
) -> None:
    damage(*log, *damaged)
    for step in (1, 2, 5):
        offsets = list(range(0, LAST + 1, step))
        found = await stored_records.read_records(*log, offsets)
        assert list(found) == [offset for offset in offsets if offset // IN_BATCH not in damaged]


@pytest.mark.parametrize("damaged", [set(), {0}, {3}, {4, 5}, {8, 9}, set(range(10))])
async def test_keys_piece_by_piece(log: tuple[MemoryStorage, PartitionId], damaged: set[int]) -> None:
    storage, partition = log
    damage(storage, partition, *damaged)
    bucket = Bucket(Period(10, 0), 7, partition)
    offset, end, found, pieces = 1, LAST, [], 0
    while offset < end:
        piece = await stored_records.read_piece(storage, partition, offset, end)
        found += list(reading.keys_in(piece, bucket, offset))
        assert offset < piece.following <= end
        offset = piece.following
        pieces += 1
    assert [at for at, _ in found] == [at for at in range(1, LAST) if at // IN_BATCH not in damaged]
    assert all(unpack(key)[:4] == (1000 - at, at.to_bytes(8, "big"), 7, at) for at, key in found)
    assert pieces > 1 or len(damaged) == BATCHES
