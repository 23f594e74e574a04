"""Producers expire in the database and in this broker's memory of it together."""

from posthouse.model.clock import ManualClock
from posthouse.storage.shared.database import Database
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.shared.housekeeping.upkeep import UpkeepSettings
from tests.storage.batches import append
from tests.storage.shared.test_committer import numbered, partitions_in


async def test_producers_of_memory_expire_with_those_of_the_database(
    shared: SharedStorage, database: Database, clock: ManualClock
) -> None:
    slow, fast = await partitions_in(shared)
    for partition in (slow, fast):
        await shared.commit([numbered(partition, 0)])
    expiry = UpkeepSettings().producer_expiry_ms / 1000
    clock.advance(expiry / 2)
    await shared.commit([numbered(slow, 1), append(fast, b"no producer")])
    clock.advance(expiry / 2 + 1)
    await shared.enforce_retention()
    assert shared.producers(fast) == {}
    assert shared.producers(slow).keys() == {7}
    connection = await database.connect("tests")
    found = await connection.execute("SELECT log, id FROM producer")
    assert await found.fetchall() == [(shared._logs[slow].id, 7)]
    await connection.close()
    [outcome] = await shared.commit([numbered(fast, 5)])
    assert outcome.base_offset == 2, "a producer that is not known begins where it likes"
    assert shared.producers(fast).keys() == {7}
