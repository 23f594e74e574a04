"""What the committer makes of answers of the database: losses, timeouts and refusals."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from posthouse.model.clock import ManualClock
from posthouse.model.errors import StorageFenced, Unavailable
from posthouse.storage.operations import Refer, Run, Trim
from posthouse.storage.shared.database import Database, DatabaseConnection
from posthouse.storage.shared.engine import SharedStorage
from tests.postgres import MIGRATED, PostgresServer, new_database
from tests.storage.batches import append, read_all
from tests.storage.shared.faulty_objects import FaultyObjectStore
from tests.storage.shared.opened import make_shared
from tests.storage.shared.test_committer import partitions_in


@pytest.fixture
async def direct(database: Database) -> AsyncIterator[DatabaseConnection]:
    connection = await database.connect("tests")
    yield connection
    await connection.close()


async def test_what_shows_that_commits_were_lost_stays(
    shared: SharedStorage, direct: DatabaseConnection
) -> None:
    """A standby without the last commits was promoted. Its number must not be brought up to date."""
    _, fast = await partitions_in(shared)
    for number in range(5):
        await shared.commit([append(fast, b"%d" % number)])
    await direct.execute("UPDATE committer SET number = number - 3 WHERE path = 0")
    await direct.execute("UPDATE log SET next = 2 WHERE id = %s", [shared._logs[fast].id])
    await direct.execute("DELETE FROM run WHERE base >= 2")
    with pytest.raises(StorageFenced, match="lost acknowledged commits"):
        await shared.commit([append(fast, b"5")])
    found = await direct.execute("SELECT number FROM committer WHERE path = 0")
    assert await found.fetchall() == [(2,)]


async def test_a_commit_that_times_out_again_and_again_is_given_up(
    postgres: PostgresServer, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    with new_database(postgres, MIGRATED) as url:
        shared = await make_shared(Database(url, lock_seconds=0.05), objects, clock)
        await shared.open()
        _, fast = await partitions_in(shared)
        other = await Database(url).connect("tests")
        async with other.transaction():
            await other.execute("SELECT FROM log FOR UPDATE")
            with pytest.raises(Unavailable, match="lock timeout"):
                await asyncio.wait_for(shared.commit([append(fast, b"1")]), 5)
        [outcome] = await shared.commit([append(fast, b"2")])
        assert outcome.base_offset == 0
        assert await read_all(shared, fast) == {0: b"2"}
        await other.close()
        await shared.close()


async def test_many_references_are_committed_before_the_timeout_of_statements(shared: SharedStorage) -> None:
    [slow, fast] = await partitions_in(shared)
    runs = [Run(slow, 2 * number, 1, 10) for number in range(40_000)]
    [outcome] = await shared.commit([Refer(fast, runs)])
    assert (outcome.base_offset, shared.bounds(fast).end) == (0, 40_000)


async def test_trimming_a_very_large_log(shared: SharedStorage, direct: DatabaseConnection) -> None:
    _, fast = await partitions_in(shared)
    end, size = 320_000_000, 320_000_000_000
    log = shared._logs[fast]
    await direct.execute(
        "UPDATE log SET next = %s, bytes = %s, segments_to = %s WHERE id = %s", [end, size, end, log.id]
    )
    log.end, log.size = end, size
    [outcome] = await shared.commit([Trim(fast, end // 2)])
    assert outcome.log_start == shared.bounds(fast).start == end // 2
    found = await direct.execute("SELECT start, bytes FROM log WHERE id = %s", [log.id])
    assert await found.fetchall() == [(end // 2, size // 2)]
    assert shared.size(fast) == size // 2


async def test_an_object_that_was_uploaded_too_long_ago_fails_its_group_only(shared: SharedStorage) -> None:
    slow, _ = await partitions_in(shared)
    uploads = shared._uploads
    new_key, uploads._new_key = uploads._new_key, lambda: "2020/01/01/00/old"
    with pytest.raises(Unavailable, match="too long ago"):
        await shared.commit([append(slow, b"1")])
    uploads._new_key = new_key
    [outcome] = await shared.commit([append(slow, b"2")])
    assert outcome.base_offset == 0
    assert uploads.pending == set()
