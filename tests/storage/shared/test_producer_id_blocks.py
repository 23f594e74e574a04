"""Blocks of producer ids: any broker reserves them, no two get the same, a fenced one gets none."""

import asyncio

import pytest

from posthouse.model.clock import ManualClock
from posthouse.storage.operations import Put
from posthouse.storage.shared.administration.administration import accept_loss
from posthouse.storage.shared.commits.last_commits import LastCommits
from posthouse.storage.shared.database import CommitsLost, Database, DatabaseAway, LeaseLost
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.spaces import Space
from tests.storage.shared.faulty_objects import FaultyObjectStore
from tests.storage.shared.opened import TestLease, make_member, take_lease

END = 2**38


async def executed(database: Database, statement: str) -> None:
    async with await database.connect("tests") as connection:
        await connection.execute(statement.encode())


async def next_id(database: Database) -> int:
    async with await database.connect("tests") as connection:
        row = await (await connection.execute("SELECT int8_of(value) FROM state WHERE space = 4")).fetchone()
    assert row is not None
    return int(row[0])


async def opened_member(
    database: Database,
    objects: FaultyObjectStore,
    clock: ManualClock,
    lease: TestLease | None = None,
    last_commits: LastCommits | None = None,
) -> SharedStorage:
    storage = await make_member(database, objects, clock, lease=lease, last_commits=last_commits)
    await storage.open()
    return storage


async def test_brokers_that_reserve_at_the_same_time_get_blocks_of_their_own(
    shared: SharedStorage, database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    storages = [shared, *[await opened_member(database, objects, clock) for _ in range(2)]]

    async def reserve(storage: SharedStorage) -> list[int | None]:
        return [await storage.shared_state.reserve_producer_ids(10, END) for _ in range(10)]

    found = await asyncio.gather(*map(reserve, storages))
    assert sorted(each or 0 for blocks in found for each in blocks) == list(range(0, 300, 10))
    assert all(blocks == sorted(each or 0 for each in blocks) for blocks in found)
    for each in storages[1:]:
        await each.close()


async def test_blocks_go_on_behind_those_of_a_data_directory_that_was_imported(shared: SharedStorage) -> None:
    await shared.commit([Put(Space.PRODUCER_IDS, b"next", (2**33 + 5).to_bytes(8, "big"))])
    assert await shared.shared_state.reserve_producer_ids(1000, END) == 2**33 + 5
    assert await shared.shared_state.reserve_producer_ids(1000, END) == 2**33 + 1005


async def test_there_is_no_block_behind_the_last_id(shared: SharedStorage) -> None:
    assert await shared.shared_state.reserve_producer_ids(1000, 2500) == 0
    assert await shared.shared_state.reserve_producer_ids(1000, 2500) == 1000
    assert await shared.shared_state.reserve_producer_ids(1000, 2500) is None
    assert await shared.shared_state.reserve_producer_ids(500, 2500) == 2000
    assert await shared.shared_state.reserve_producer_ids(1, 2500) is None


async def test_a_broker_that_was_fenced_gets_none(
    shared: SharedStorage, database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    lease = await take_lease(database, scopes=())
    member = await opened_member(database, objects, clock, lease)
    assert await member.shared_state.reserve_producer_ids(10, END) == 0
    await executed(database, f"SELECT fence('{lease.incarnation}')")
    for _ in range(2):
        with pytest.raises(LeaseLost):
            await member.shared_state.reserve_producer_ids(10, END)
    assert lease.is_lost
    assert await shared.shared_state.reserve_producer_ids(10, END) == 10
    await member.close()


async def test_a_database_that_has_lost_a_reservation_is_recognised(
    shared: SharedStorage, database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    """Else the next broker would assign the same ids."""
    lease, last_commits = await take_lease(database, scopes=()), LastCommits()
    member = await opened_member(database, objects, clock, lease, last_commits)
    assert await member.shared_state.reserve_producer_ids(10, END) == 0
    before = await next_id(database)
    await executed(database, "UPDATE committer SET number = number - 1 WHERE path = 2")
    with pytest.raises(DatabaseAway, match="is missing"):
        await member.shared_state.reserve_producer_ids(10, END)
    assert await next_id(database) == before
    await member.close()
    with pytest.raises(CommitsLost, match="was answered"):
        await opened_member(database, objects, clock, lease, last_commits)
    await accept_loss(database._conninfo)
    again = await opened_member(database, objects, clock, lease, last_commits)
    first = await again.shared_state.reserve_producer_ids(10, END)
    assert first == before + 2**27, "what the lost commits may have assigned is skipped"
    await again.close()
