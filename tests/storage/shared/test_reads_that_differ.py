"""Reads while this broker's memory of a log and the database differ, as they do when a commit is in doubt."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from posthouse.model.clock import ManualClock
from posthouse.model.errors import DataDamaged
from posthouse.model.ids import PartitionId
from posthouse.storage.shared.database import Database, DatabaseConnection
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.shared.reads.found_pieces import FoundPieces
from tests.storage.batches import append, make_topic
from tests.storage.shared.faulty_objects import FaultyObjectStore
from tests.storage.shared.opened import make_shared


class Queries:
    """Counts how often the reads of a storage look for pieces."""

    def __init__(self, storage: SharedStorage) -> None:
        self.count = 0
        reads = storage._reads
        find = reads._find

        async def counted(*arguments: Any, **options: Any) -> FoundPieces:
            self.count += 1
            return await find(*arguments, **options)

        reads._find = counted  # type: ignore[method-assign]


@pytest.fixture
async def cold(
    database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> AsyncIterator[SharedStorage]:
    """It keeps no batches in memory."""
    made = await make_shared(database, objects, clock, tail_bytes=0)
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def direct(database: Database) -> AsyncIterator[DatabaseConnection]:
    connection = await database.connect("tests")
    yield connection
    await connection.close()


@pytest.fixture
async def partition(cold: SharedStorage) -> PartitionId:
    """With three records."""
    topic = make_topic()
    await cold.create_topics([topic])
    for number in range(3):
        await cold.commit([append(topic.partition(0), b"%d" % number)])
    return topic.partition(0)


async def test_a_search_by_time_below_the_start_learns_where_the_log_starts(
    cold: SharedStorage, partition: PartitionId, direct: DatabaseConnection
) -> None:
    queries = Queries(cold)
    await direct.execute("UPDATE log SET start = 2")
    found = await cold.find_timestamp(partition, 0)
    assert found is not None and found.offset == 2
    assert queries.count <= 10
    assert cold.bounds(partition).start == 2


async def test_a_read_behind_the_end_ends(
    cold: SharedStorage, partition: PartitionId, direct: DatabaseConnection
) -> None:
    queries = Queries(cold)
    await direct.execute("UPDATE log SET next = 1")
    await direct.execute("DELETE FROM run WHERE base >= 1")
    with pytest.raises(DataDamaged, match="offset 1"):
        await cold.read(partition, 1, 100)
    assert queries.count <= 10
