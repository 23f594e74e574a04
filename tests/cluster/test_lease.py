"""The lease of a broker: its time by two clocks, who is fenced, and a database that goes away."""

import asyncio
from dataclasses import replace
from uuid import UUID, uuid4

import psycopg
import pytest

from posthouse.model.clock import Clock, ManualClock, SystemClock
from posthouse.model.scopes import COORDINATOR
from posthouse.storage.shared.database import CommitsLost, Database, DatabaseAway
from posthouse.storage.shared.membership.lease import Lease, LeaseTimes, take_exclusive_lease, take_lease
from posthouse.storage.shared.membership.loss_watch import Seen
from posthouse.storage.shared.membership.scopes import Scopes
from tests.cluster.holders import coordinator
from tests.postgres import PostgresServer

ONE, OTHER = UUID(int=1), UUID(int=2)
SHORT = LeaseTimes(seconds=1.0, renewal_seconds=0.2, margin_seconds=0.3)

Sql = psycopg.Connection[tuple[object, ...]]


async def taken(
    database: Database, who: UUID, clock: Clock | None = None, times: LeaseTimes | None = None
) -> Lease:
    lease = await take_lease(database, who, clock=clock or ManualClock(), times=times)
    assert lease is not None
    return lease


async def coordinates(database: Database, lease: Lease) -> bool:
    """Whether it gets the scope coordinator."""
    scopes = Scopes(database, lease, Seen)
    try:
        return COORDINATOR in await scopes.take([COORDINATOR])
    finally:
        await scopes.close()


def let_its_time_pass(sql: Sql, lease: Lease) -> None:
    sql.execute("UPDATE lease SET until = clock_timestamp() WHERE holder = %s", [lease.incarnation])


def checks(sql: Sql, lease: Lease) -> bool:
    """Whether a commit under this lease would be accepted."""
    try:
        sql.execute("SELECT check_lease(%s, %s)", [lease.incarnation, lease.epoch])
    except psycopg.Error as error:
        assert error.sqlstate == "PH001"
        return False
    return True


async def test_every_broker_has_one_and_their_epochs_only_grow(database: Database, sql: Sql) -> None:
    found = await asyncio.gather(*(taken(database, uuid4()) for _ in range(6)))
    assert sorted(each.epoch for each in found) == [1, 2, 3, 4, 5, 6]
    assert all(checks(sql, each) for each in found)
    for each in found[:3]:
        await each.release()
    assert (await taken(database, ONE)).epoch == 7


async def test_a_broker_is_fenced_when_its_time_has_passed(database: Database, sql: Sql) -> None:
    first, second = await taken(database, ONE), await taken(database, OTHER)
    assert await coordinates(database, first)
    assert not await coordinates(database, second)
    assert checks(sql, first)
    let_its_time_pass(sql, first)
    assert await coordinates(database, second)
    assert not checks(sql, first)
    assert checks(sql, second)
    assert not await first.renew()
    assert first.is_lost
    assert not first.is_valid


async def test_a_broker_that_was_fenced_begins_anew(database: Database, sql: Sql) -> None:
    first, other = await taken(database, ONE), await taken(database, OTHER)
    assert await coordinates(database, first)
    let_its_time_pass(sql, first)
    assert await coordinates(database, other)
    again = await taken(database, ONE)
    assert again.epoch == 3
    assert checks(sql, again)
    assert not checks(sql, first)


async def test_a_new_lease_of_a_broker_ends_the_one_before(database: Database, sql: Sql) -> None:
    """As if it had missed the answer. It holds no scopes under the new one."""
    first = await taken(database, ONE)
    assert await coordinates(database, first)
    second = await taken(database, ONE)
    assert (checks(sql, first), checks(sql, second)) == (False, True)
    assert not await first.renew()
    await first.release()
    assert checks(sql, second)
    assert sql.execute("SELECT count(*) FROM scope WHERE holder IS NOT NULL").fetchone() == (0,)


async def test_a_renewal_after_its_time_finds_it_still_held(database: Database, sql: Sql) -> None:
    clock = ManualClock()
    lease, other = await taken(database, ONE, clock), await taken(database, OTHER)
    assert await coordinates(database, lease)
    clock.advance(60)
    let_its_time_pass(sql, lease)
    assert not lease.is_valid
    assert not lease.is_lost
    assert await lease.renew()
    assert lease.is_valid
    assert not await coordinates(database, other)


async def test_the_broker_stops_before_the_database_lets_others_fence_it(database: Database) -> None:
    clock = ManualClock()
    lease = await taken(database, ONE, clock)
    clock.advance(5.9)
    assert lease.is_valid
    assert 0 < lease.seconds_left < 0.2
    clock.advance(0.2)
    assert not lease.is_valid
    assert lease.seconds_left == 0


async def test_what_a_broker_has_released_is_free_at_once(database: Database, sql: Sql) -> None:
    first, second = await taken(database, ONE), await taken(database, OTHER)
    assert await coordinates(database, first)
    await first.release()
    assert first.is_lost
    assert not checks(sql, first)
    assert await coordinates(database, second)
    assert second.scopes == {COORDINATOR: 2}


async def test_a_broker_that_was_fenced_releases_nothing_of_its_successor(
    database: Database, sql: Sql
) -> None:
    first, second = await taken(database, ONE), await taken(database, OTHER)
    assert await coordinates(database, first)
    let_its_time_pass(sql, first)
    assert await coordinates(database, second)
    await first.release()
    assert checks(sql, second)
    assert await second.renew()
    assert sql.execute("SELECT holder FROM scope WHERE name = 'coordinator'").fetchone() == (OTHER,)


async def test_a_renewal_does_not_wait_for_a_commit(database: Database, url: str) -> None:
    lease = await taken(database, ONE)
    with psycopg.connect(url, options="-c search_path=posthouse") as commit:
        commit.execute("SELECT check_lease(%s, %s)", [ONE, lease.epoch])
        assert await asyncio.wait_for(lease.renew(), 1)


async def test_a_takeover_waits_for_the_commit_in_flight(database: Database, sql: Sql, url: str) -> None:
    lease, other = await taken(database, ONE), await taken(database, OTHER)
    assert await coordinates(database, lease)
    let_its_time_pass(sql, lease)
    with psycopg.connect(url, options="-c search_path=posthouse") as commit:
        commit.execute("SELECT check_lease(%s, %s, '{coordinator}')", [ONE, lease.epoch])
        taking = asyncio.create_task(coordinates(database, other))
        await asyncio.sleep(0.3)
        assert not taking.done()
        commit.commit()
        assert await taking


async def test_it_is_kept_in_real_time(database: Database) -> None:
    lease = await taken(database, ONE, SystemClock(), SHORT)
    assert await coordinates(database, lease)
    lease.keep()
    other = await taken(database, OTHER)
    for _ in range(15):
        await asyncio.sleep(0.1)
        assert not await coordinates(database, other)
    assert lease.is_valid
    await lease.release()


async def test_a_broker_that_does_not_renew_is_fenced_in_real_time(database: Database, sql: Sql) -> None:
    first, second = await taken(database, ONE, SystemClock(), SHORT), await taken(database, OTHER)
    assert await coordinates(database, first)
    while not await coordinates(database, second):
        await asyncio.sleep(0.02)
    assert not first.is_valid  # by its own clock, before it has asked
    first.keep()
    await asyncio.wait_for(first.lost(), 3)
    await first.release()
    assert checks(sql, second)


async def test_an_exclusive_lease_keeps_all_brokers_out(database: Database, sql: Sql) -> None:
    first = await taken(database, ONE)
    assert await take_exclusive_lease(database, OTHER, clock=ManualClock(), live_seconds=5) is None
    let_its_time_pass(sql, first)
    export = await take_exclusive_lease(database, OTHER, clock=ManualClock(), live_seconds=5)
    assert export is not None
    assert not await first.renew()  # though it may wake up: the export has fenced it
    assert await take_lease(database, ONE, clock=ManualClock()) is None
    assert export.holds(COORDINATOR)
    sql.execute("SELECT check_lease(%s, %s, '{coordinator,groups/63}')", [OTHER, export.epoch])
    # A broker that comes after the end of its time ends it, whether it goes on or not.
    let_its_time_pass(sql, export)
    again = await taken(database, ONE)
    assert not await export.renew()
    assert await coordinates(database, again)


async def test_leases_of_brokers_that_died_do_not_gather(database: Database, sql: Sql) -> None:
    dead, late = await taken(database, ONE), await taken(database, OTHER)
    sql.execute("UPDATE lease SET until = now() - interval '25 hours' WHERE holder = %s", [ONE])
    sql.execute("UPDATE lease SET until = now() - interval '23 hours' WHERE holder = %s", [OTHER])
    await taken(database, uuid4())
    assert not await dead.renew()
    assert await late.renew()
    assert sql.execute("SELECT count(*) FROM lease").fetchone() == (2,)
    assert sql.execute("SELECT count(*) FROM writer").fetchone() == (2,)


async def test_it_is_resumed_when_the_database_comes_back(
    postgres: PostgresServer, database: Database
) -> None:
    lease = await taken(database, ONE, SystemClock(), SHORT)
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
    """ONE was the coordinator of epoch 1, and made so many commits."""
    sql.execute("INSERT INTO cluster (id, secret) VALUES ('c', 's')")
    coordinator(sql, ONE, seconds=0)
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
    assert sql.execute("SELECT DISTINCT epoch, holder FROM scope").fetchall() == [(1, ONE)]
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


@pytest.mark.parametrize("seen", [SEEN, Seen(commits_of={ONE: 901})])
async def test_scopes_are_not_taken_from_a_database_that_shows_less(
    database: Database, sql: Sql, seen: Seen
) -> None:
    """The lease was taken before the loss."""
    make_cluster(sql, 900)
    lease = await taken(database, OTHER)
    scopes = Scopes(database, lease, lambda: seen)
    with pytest.raises(CommitsLost, match="accept-loss"):
        await scopes.take([COORDINATOR])
    assert sql.execute("SELECT DISTINCT holder FROM scope").fetchall() == [(ONE,)]
    assert lease.scopes == {}
    await scopes.close()


async def test_why_it_was_lost(database: Database, sql: Sql) -> None:
    first, second = await taken(database, ONE), await taken(database, OTHER)
    first.fenced("the committer failed")
    await first.release()
    assert first.lost_because == "the committer failed"
    assert not checks(sql, first)  # others need not wait for the end of its time
    assert await coordinates(database, second)
    let_its_time_pass(sql, second)
    assert await coordinates(database, await taken(database, ONE))
    assert not await second.renew()
    assert second.lost_because == "another broker has taken over"
