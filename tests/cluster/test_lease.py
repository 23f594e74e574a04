"""The lease: two brokers that want it, its time by two clocks, and a database that goes away."""

import asyncio
from dataclasses import replace
from uuid import UUID, uuid4

import psycopg
import pytest

from posthouse.model.clock import ManualClock, SystemClock
from posthouse.storage.shared.database import CommitsLost, Database, DatabaseAway
from posthouse.storage.shared.membership.lease import Lease, LeaseTimes, take_lease
from posthouse.storage.shared.membership.loss_watch import Seen
from tests.postgres import PostgresServer

ONE, OTHER = UUID(int=1), UUID(int=2)
SHORT = LeaseTimes(seconds=1.0, renewal_seconds=0.2, margin_seconds=0.3)

Sql = psycopg.Connection[tuple[object, ...]]


async def taken(database: Database, who: UUID, clock: ManualClock | None = None) -> Lease:
    lease = await take_lease(database, who, clock=clock or ManualClock())
    assert lease is not None
    return lease


def let_its_time_pass(sql: Sql) -> None:
    sql.execute("UPDATE lease SET until = clock_timestamp()")


def checks(sql: Sql, lease: Lease) -> bool:
    """Whether a commit of this lease would be accepted."""
    try:
        sql.execute("SELECT check_lease(%s, %s)", [lease.incarnation, lease.epoch])
    except psycopg.Error as error:
        assert error.sqlstate == "PH001"
        return False
    return True


async def test_one_of_two_takes_it(database: Database) -> None:
    found = await asyncio.gather(
        *(take_lease(database, uuid4(), clock=SystemClock(), times=SHORT) for _ in range(6))
    )
    assert [each.epoch for each in found if each] == [1]


async def test_it_cannot_be_taken_before_its_time_has_passed(database: Database, sql: Sql) -> None:
    first = await taken(database, ONE)
    assert await take_lease(database, OTHER, clock=ManualClock()) is None
    assert checks(sql, first)
    let_its_time_pass(sql)
    second = await taken(database, OTHER)
    assert (first.epoch, second.epoch) == (1, 2)
    assert not checks(sql, first)
    assert checks(sql, second)
    assert not await first.renew()
    assert first.is_lost
    assert not first.is_valid


async def test_a_renewal_after_its_time_finds_it_still_held(database: Database, sql: Sql) -> None:
    clock = ManualClock()
    lease = await taken(database, ONE, clock)
    clock.advance(60)
    let_its_time_pass(sql)
    assert not lease.is_valid
    assert not lease.is_lost
    assert await lease.renew()
    assert lease.is_valid
    assert await take_lease(database, OTHER, clock=clock) is None


async def test_the_holder_stops_before_the_database_lets_another_take_it(database: Database) -> None:
    clock = ManualClock()
    lease = await taken(database, ONE, clock)
    clock.advance(5.9)
    assert lease.is_valid
    assert 0 < lease.seconds_left < 0.2
    clock.advance(0.2)
    assert not lease.is_valid
    assert lease.seconds_left == 0


async def test_a_released_lease_is_free_at_once(database: Database, sql: Sql) -> None:
    first = await taken(database, ONE)
    await first.release()
    assert first.is_lost
    assert not checks(sql, first)
    assert (await taken(database, OTHER)).epoch == 2


async def test_a_lease_that_was_taken_by_another_is_not_released(database: Database, sql: Sql) -> None:
    first = await taken(database, ONE)
    let_its_time_pass(sql)
    second = await taken(database, OTHER)
    await first.release()
    assert checks(sql, second)
    assert await second.renew()


async def test_a_renewal_does_not_wait_for_a_commit_that_has_locked_the_scope(
    database: Database, url: str
) -> None:
    lease = await taken(database, ONE)
    with psycopg.connect(url, options="-c search_path=posthouse") as commit:
        commit.execute("SELECT check_lease(%s, %s)", [ONE, lease.epoch])
        assert await asyncio.wait_for(lease.renew(), 1)


async def test_a_takeover_waits_for_the_commit_in_flight(database: Database, sql: Sql, url: str) -> None:
    lease = await taken(database, ONE)
    let_its_time_pass(sql)
    with psycopg.connect(url, options="-c search_path=posthouse") as commit:
        commit.execute("SELECT check_lease(%s, %s)", [ONE, lease.epoch])
        taking = asyncio.create_task(taken(database, OTHER))
        await asyncio.sleep(0.3)
        assert not taking.done()
        commit.commit()
        assert (await taking).epoch == 2


async def test_it_is_kept_in_real_time(database: Database) -> None:
    lease = await take_lease(database, ONE, clock=SystemClock(), times=SHORT)
    assert lease is not None
    lease.keep()
    for _ in range(15):
        await asyncio.sleep(0.1)
        assert await take_lease(database, OTHER, clock=SystemClock(), times=SHORT) is None
    assert lease.is_valid
    await lease.release()


async def test_a_holder_that_does_not_renew_loses_it_in_real_time(database: Database, sql: Sql) -> None:
    first = await take_lease(database, ONE, clock=SystemClock(), times=SHORT)
    assert first is not None
    while (second := await take_lease(database, OTHER, clock=SystemClock(), times=SHORT)) is None:
        await asyncio.sleep(0.02)
    assert not first.is_valid  # by its own clock, before it has asked
    first.keep()
    await asyncio.wait_for(first.lost(), 3)
    assert second.is_valid
    await first.release()
    assert checks(sql, second)


async def test_it_is_resumed_when_the_database_comes_back(
    postgres: PostgresServer, database: Database
) -> None:
    lease = await take_lease(database, ONE, clock=SystemClock(), times=SHORT)
    assert lease is not None
    lease.keep()
    assert not lease.is_cut_off
    postgres.pause()
    try:
        await asyncio.sleep(1.5)
        assert not lease.is_valid
        assert lease.is_cut_off
        assert not lease.is_lost
    finally:
        postgres.resume()
    async with asyncio.timeout(10):
        while not lease.is_valid:
            await asyncio.sleep(0.05)
    assert not lease.is_cut_off
    await lease.release()


async def test_a_process_that_was_stopped_does_not_think_that_it_is_cut_off(
    postgres: PostgresServer, database: Database
) -> None:
    clock = ManualClock()
    lease = await taken(database, ONE, clock)
    postgres.stop()
    try:
        with pytest.raises(DatabaseAway):
            await lease.renew()
        assert lease.is_valid
        clock.advance(5)
        assert lease.is_cut_off
        clock.advance(60)
        assert not lease.is_cut_off
    finally:
        postgres.start()


async def test_reads_of_a_broker_that_is_cut_off_end_after_a_while(
    postgres: PostgresServer, database: Database
) -> None:
    """Another broker may have taken over, and clients must find it."""
    clock = ManualClock()
    lease = await taken(database, ONE, clock)
    postgres.stop()
    try:
        cut_off = []
        for _ in range(70):
            clock.advance(5)
            with pytest.raises(DatabaseAway):
                await lease.renew()
            cut_off.append(lease.is_cut_off)
    finally:
        postgres.start()
    assert cut_off[0] and not cut_off[-1]
    assert 55 <= cut_off.count(True) <= 63


THIRD = UUID(int=3)
SEEN = Seen(epoch=1, holder=ONE, commits=1000)


def make_cluster(sql: Sql, commits: int) -> None:
    """ONE had the lease of epoch 1, and made so many commits."""
    sql.execute("INSERT INTO cluster (id, secret) VALUES ('c', 's')")
    sql.execute("SELECT take_lease(%s, 0)", [ONE])
    sql.execute("INSERT INTO committer (incarnation, path, number) VALUES (%s, 0, %s)", [ONE, commits])


@pytest.mark.parametrize(
    "seen",
    [
        SEEN,
        replace(SEEN, epoch=2, commits=0),
        replace(SEEN, holder=OTHER, commits=0),
        replace(SEEN, commits=901, confirmed_losses=1),
        Seen(commits_of={THIRD: 0, ONE: 901}),
        Seen(commits_of={ONE: 900, THIRD: 1}),
    ],
)
async def test_a_database_that_shows_less_than_was_seen_gives_no_lease(
    database: Database, sql: Sql, seen: Seen
) -> None:
    make_cluster(sql, 900)
    with pytest.raises(CommitsLost, match="accept-loss"):
        await take_lease(database, OTHER, clock=ManualClock(), seen=seen)
    # The verdict is kept: it holds for a broker that has just started.
    with pytest.raises(CommitsLost, match="accept-loss"):
        await take_lease(database, uuid4(), clock=ManualClock())
    assert sql.execute("SELECT epoch, holder FROM lease").fetchall() == [(1, ONE)]
    sql.execute("UPDATE cluster SET confirmed_losses = confirmed_losses + 2, loss = NULL")
    assert await take_lease(database, OTHER, clock=ManualClock(), seen=seen) is not None
    assert sql.execute("SELECT loss FROM cluster").fetchall() == [(None,)]


async def test_a_database_that_shows_what_was_seen_gives_the_lease(database: Database, sql: Sql) -> None:
    make_cluster(sql, 1000)
    sql.execute("SELECT release_lease(%s, 1)", [ONE])
    seen = replace(SEEN, commits_of={ONE: 1000, THIRD: 0})
    assert await take_lease(database, OTHER, clock=ManualClock(), seen=seen) is not None


async def test_commits_of_a_holder_that_has_released_the_lease_are_not_forgotten(
    database: Database, sql: Sql
) -> None:
    make_cluster(sql, 999)
    sql.execute("SELECT release_lease(%s, 1)", [ONE])
    with pytest.raises(CommitsLost, match="number 999, and had 1000"):
        await take_lease(database, OTHER, clock=ManualClock(), seen=SEEN)


async def test_why_it_was_lost(database: Database, sql: Sql) -> None:
    first = await taken(database, ONE)
    first.fenced("the committer failed")
    await first.release()
    assert first.lost_because == "the committer failed"
    let_its_time_pass(sql)
    second = await taken(database, OTHER)
    let_its_time_pass(sql)
    await taken(database, ONE)
    assert not await second.renew()
    assert second.lost_because == "another broker has taken it"
