"""Removal of trimmed segments while compaction replaces some of them: either one wins, and neither loses."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import TypeVar

import pytest

from posthouse.storage.shared.database import DatabaseConnection
from tests.storage.batches import make_batch
from tests.storage.shared.shared_logs import SharedLogs
from tests.storage.shared.test_consolidation import consolidation

T = TypeVar("T")


@pytest.fixture
async def other(logs: SharedLogs) -> AsyncIterator[DatabaseConnection]:
    """A second connection: that of compaction."""
    async with await logs.connect() as connection:
        yield connection


async def segmented(logs: SharedLogs, partitions: int = 1) -> list[int]:
    """Logs with one segment for each of their three records, all in one object."""
    made = await logs.create(partitions=partitions, segment_bytes="14")
    for log in made:
        for number in range(3):
            await logs.append(log, make_batch(b"%d" % number))
    await consolidation(logs).run_once()
    return made


async def remove(logs: SharedLogs) -> int:
    row = await logs.one(
        "SELECT remove_trimmed_segments(%s, %s, 1000)", logs.lease.incarnation, logs.lease.epoch
    )
    return int(row[0])


async def swap(
    logs: SharedLogs, connection: DatabaseConnection, log: int, bases: list[int], last: int
) -> int | None:
    """Compaction puts one segment in the place of those that begin at `bases`."""
    found = await connection.execute(
        "SELECT swap_segments(%s, %s, %s, %s, %s, 'merged', %s, %s, 200, 1, 1, 1, %s, 1000, '')",
        [
            logs.lease.incarnation,
            logs.lease.epoch,
            log,
            bases,
            [0] * len(bases),
            bases[0],
            last,
            last + 1,
        ],
    )
    row = await found.fetchone()
    assert row is not None
    growth: int | None = row[0]
    return growth


async def waits(logs: SharedLogs) -> None:
    """Return when a statement waits for a lock."""
    watch = await logs.database.connect("tests")
    try:
        while True:
            found = await watch.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                "AND wait_event_type = 'Lock'"
            )
            if (await found.fetchone()) != (0,):
                return
            await asyncio.sleep(0.005)
    finally:
        await watch.close()


async def begun(logs: SharedLogs, work: Awaitable[T]) -> asyncio.Future[T]:
    """The work, when it waits for a lock."""
    task = asyncio.ensure_future(work)
    await asyncio.wait_for(waits(logs), 10)
    return task


async def uses(logs: SharedLogs) -> list[tuple[int, bool]]:
    """Of every object: its uses, and whether it is doomed."""
    found = await logs.connection.execute("SELECT live, doomed_at IS NOT NULL FROM object ORDER BY id")
    return await found.fetchall()


async def test_removal_spares_a_segment_that_compaction_has_just_written(
    logs: SharedLogs, other: DatabaseConnection
) -> None:
    """It begins at the same offset as a segment that removal had found below the start."""
    [log] = await segmented(logs)
    await logs.trim(log, 1)
    async with other.transaction():
        await other.execute("SELECT FROM writer FOR UPDATE")
        removal = await begun(logs, remove(logs))
        await swap(logs, other, log, [0, 1], 1)
    assert await removal == 0
    assert [(each.base, each.last) for each in await logs.segments(log)] == [(0, 1), (2, 2)]
    assert (await uses(logs))[-1] == (1, False)
    assert await remove(logs) == 0


async def test_compaction_of_a_segment_that_removal_takes_releases_its_object_once(
    logs: SharedLogs, other: DatabaseConnection
) -> None:
    """The object has segments of another log, too: released twice, it would be deleted with them."""
    [log, _] = await segmented(logs, partitions=2)
    assert (await uses(logs))[-1] == (6, False)
    await logs.trim(log, 1)
    async with logs.connection.transaction():
        assert await remove(logs) == 1
        merged = await begun(logs, swap(logs, other, log, [0, 1], 1))
    assert await merged is None, "nothing was changed"
    assert [(each.base, each.last) for each in await logs.segments(log)] == [(1, 1), (2, 2)]
    assert (await uses(logs))[-2:] == [(5, False), (0, True)]


async def test_objects_are_locked_in_the_order_of_their_ids(
    logs: SharedLogs, other: DatabaseConnection
) -> None:
    """Else two that release the same objects wait for each other, and the database ends one of them."""
    ids = [
        (await logs.one("INSERT INTO object (key, size, live) VALUES (%s, 1, 3) RETURNING id", str(number)))[
            0
        ]
        for number in range(2)
    ]
    # Its row lies behind that of the second one now.
    await logs.connection.execute("UPDATE object SET live = 2 WHERE id = %s", [ids[0]])
    async with other.transaction():
        await other.execute("UPDATE object SET live = live WHERE id = %s", [ids[0]])
        release = await begun(
            logs, logs.connection.execute("SELECT release_objects(%s::bigint[], '{1,1}')", [ids[::-1]])
        )
        await other.execute("SELECT FROM object WHERE id = %s FOR UPDATE NOWAIT", [ids[1]])
    await release
    assert await uses(logs) == [(1, False), (2, False)]
