"""Scopes: who can take them, how they are handed over, and what their holder may commit."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from uuid import UUID, uuid4

import psycopg
import pytest

from posthouse.model.clock import ManualClock
from posthouse.model.scopes import COORDINATOR, GROUPS, SCOPES, Scope
from posthouse.storage.shared.database import Database, DatabaseAway
from posthouse.storage.shared.membership.lease import take_lease
from posthouse.storage.shared.membership.loss_watch import Seen
from posthouse.storage.shared.membership.scopes import Scopes
from tests.postgres import PostgresServer

Sql = psycopg.Connection[tuple[object, ...]]


@asynccontextmanager
async def brokers(database: Database, count: int) -> AsyncIterator[list[Scopes]]:
    async with AsyncExitStack() as stack:
        made = []
        for number in range(count):
            lease = await take_lease(database, UUID(int=number + 1), clock=ManualClock())
            assert lease is not None
            scopes = Scopes(database, lease, Seen)
            stack.push_async_callback(lease.release)
            stack.push_async_callback(scopes.close)
            made.append(scopes)
        yield made


def end(sql: Sql, *over: Scopes) -> None:
    """The time of their leases has passed."""
    holders = [each.lease.incarnation for each in over]
    sql.execute("UPDATE lease SET until = clock_timestamp() WHERE holder = ANY (%s)", [holders])


def refusal(sql: Sql, broker: Scopes, *scopes: Scope) -> str | None:
    """Why a commit of the broker that names the scopes would be refused."""
    names = [scope.name for scope in scopes]
    try:
        sql.execute("SELECT check_lease(%s, %s, %s)", [broker.lease.incarnation, broker.lease.epoch, names])
    except psycopg.Error as error:
        assert error.sqlstate == "PH001"
        return error.diag.message_primary
    return None


def holder(sql: Sql, scope: Scope) -> tuple[object, object] | None:
    found = sql.execute("SELECT holder, epoch FROM scope WHERE name = %s", [scope.name]).fetchone()
    return None if found is None else (found[0], found[1])


def test_the_database_has_the_scopes_of_the_model(sql: Sql) -> None:
    found = sql.execute("SELECT name FROM scope").fetchall()
    assert {name for [name] in found} == {scope.name for scope in SCOPES}


async def test_one_broker_takes_a_scope(database: Database, sql: Sql) -> None:
    async with brokers(database, 6) as made:
        found = await asyncio.gather(*(each.take(SCOPES) for each in made))
        assert sorted(map(len, found)) == [0] * 5 + [len(SCOPES)]
        [winner] = [each for each in made if each.lease.scopes]
        assert winner.lease.scopes == dict.fromkeys(SCOPES, 1)
        assert [refusal(sql, each, COORDINATOR) is None for each in made] == [each is winner for each in made]


async def test_scopes_lie_with_different_brokers(database: Database, sql: Sql) -> None:
    async with brokers(database, 2) as (one, other):
        assert await one.take(GROUPS[:3]) == set(GROUPS[:3])
        assert await other.take(GROUPS[2:5]) == set(GROUPS[3:5])
        assert refusal(sql, one, *GROUPS[:3]) is None
        assert refusal(sql, other, *GROUPS[3:5]) is None
        assert refusal(sql, other) is None
        assert refusal(sql, other, GROUPS[3], GROUPS[2]) == "the broker does not hold the scope groups/02"
        assert refusal(sql, one, COORDINATOR) == "the broker does not hold the scope coordinator"
        assert one.lease.holds(GROUPS[0]) and not other.lease.holds(GROUPS[0])


async def test_scopes_of_a_live_broker_cannot_be_taken(database: Database, sql: Sql) -> None:
    async with brokers(database, 2) as (one, other):
        await one.take([GROUPS[0]])
        assert await other.take([GROUPS[0], GROUPS[1]]) == {GROUPS[1]}
        assert holder(sql, GROUPS[0]) == (one.lease.incarnation, 1)
        assert refusal(sql, one, GROUPS[0]) is None


async def test_who_takes_one_scope_of_a_broker_fences_it_from_all(database: Database, sql: Sql) -> None:
    async with brokers(database, 3) as (dead, second, third):
        await dead.take(GROUPS[:4])
        end(sql, dead)
        assert await second.take([GROUPS[0]]) == {GROUPS[0]}
        assert refusal(sql, dead) == "the lease of epoch 1 is lost"
        assert not await dead.lease.renew()
        assert await third.take(GROUPS[:3]) == {GROUPS[1], GROUPS[2]}
        assert await dead.take([GROUPS[3]]) == set()
        assert dead.lease.is_lost
        assert not dead.lease.holds(GROUPS[3])
        assert holder(sql, GROUPS[0]) == (second.lease.incarnation, 2)
        assert holder(sql, GROUPS[1]) == (third.lease.incarnation, 2)


async def test_scopes_of_several_dead_brokers_are_taken_at_once(database: Database, sql: Sql) -> None:
    async with brokers(database, 4) as (one, two, live, taker):
        await one.take(GROUPS[:2])
        await two.take(GROUPS[2:4])
        await live.take(GROUPS[4:6])
        end(sql, one, two)
        assert await taker.take(GROUPS) == set(GROUPS) - set(GROUPS[4:6])
        assert [refusal(sql, each) is None for each in (one, two, live)] == [False, False, True]


async def test_brokers_that_take_scopes_of_the_dead_do_not_wait_in_a_circle(
    database: Database, sql: Sql
) -> None:
    async with brokers(database, 8) as made:
        for turn in range(10):
            half = made[:4] if turn % 2 else made[4:]
            for number, each in enumerate(half):
                await each.take(GROUPS[number::4])
            sql.execute(
                "UPDATE lease SET until = clock_timestamp() WHERE holder = ANY (%s)",
                [[each.lease.incarnation for each in half]],
            )
            others = [each for each in made if each not in half]
            parts = [[GROUPS[(7 * n + k) % 64] for n in range(64)][k * 16 : k * 16 + 32] for k in range(4)]
            await asyncio.gather(*(each.take(part) for each, part in zip(others, parts, strict=True)))
            for each in half:
                assert refusal(sql, each) is not None
                lease = await take_lease(database, each.lease.incarnation, clock=ManualClock())
                assert lease is not None
                await each.lease.release()
                each.lease = lease
            for each in others:
                for scope in sorted(each.lease.scopes):
                    await each.release(scope)


async def test_a_broker_whose_own_time_has_passed_takes_nothing(database: Database, sql: Sql) -> None:
    async with brokers(database, 2) as (late, dead):
        await dead.take([COORDINATOR])
        end(sql, late, dead)
        assert await late.take(SCOPES) == set()
        assert refusal(sql, dead, COORDINATOR) is None
        assert await late.lease.renew()
        assert await late.take(SCOPES) == set(SCOPES)


async def test_a_released_scope_is_handed_over_at_once(database: Database, sql: Sql) -> None:
    async with brokers(database, 2) as (one, other):
        await one.take(GROUPS[:2])
        await one.release(GROUPS[0])
        assert not one.lease.holds(GROUPS[0])
        assert refusal(sql, one, GROUPS[0]) is not None
        assert refusal(sql, one, GROUPS[1]) is None
        assert await other.take(GROUPS[:2]) == {GROUPS[0]}
        assert other.lease.scopes == {GROUPS[0]: 2}
        await one.release(GROUPS[0])  # it is another's by now
        assert holder(sql, GROUPS[0]) == (other.lease.incarnation, 2)


async def test_epochs_of_a_scope_only_grow(database: Database) -> None:
    async with brokers(database, 2) as (one, other):
        found = []
        for each in (one, other, one, other):
            await each.take([COORDINATOR])
            found.append(each.lease.scopes[COORDINATOR])
            await each.release(COORDINATOR)
        assert found == [1, 2, 3, 4]


async def test_a_scope_whose_answer_was_lost_is_taken_again(database: Database, sql: Sql) -> None:
    async with brokers(database, 1) as (one,):
        await one.take([COORDINATOR])
        one.lease.scopes.clear()
        assert await one.take([COORDINATOR]) == {COORDINATOR}
        assert refusal(sql, one, COORDINATOR) is None


async def test_a_release_waits_for_the_commit_in_flight(database: Database, sql: Sql, url: str) -> None:
    async with brokers(database, 2) as (one, other):
        await one.take([GROUPS[0]])
        with psycopg.connect(url, options="-c search_path=posthouse") as commit:
            commit.execute(
                "SELECT check_lease(%s, %s, '{groups/00}')", [one.lease.incarnation, one.lease.epoch]
            )
            releasing = asyncio.create_task(one.release(GROUPS[0]))
            await asyncio.sleep(0.3)
            assert not releasing.done()
            assert holder(sql, GROUPS[0]) == (one.lease.incarnation, 1)
            commit.commit()
            await releasing
        assert await other.take([GROUPS[0]]) == {GROUPS[0]}


async def test_a_commit_that_waited_for_a_takeover_is_refused(database: Database, sql: Sql, url: str) -> None:
    """It asks while another broker has fenced this one, and that does not count yet."""
    async with brokers(database, 1) as (one,):
        await one.take([COORDINATOR])
        end(sql, one)
        other = uuid4()
        sql.execute("SELECT take_lease(%s, 8)", [other])
        with psycopg.connect(url, options="-c search_path=posthouse") as taker:
            taker.execute("SELECT take_scopes(%s, 2, '{coordinator}')", [other])
            commit = asyncio.create_task(asyncio.to_thread(refusal, sql, one, COORDINATOR))
            await asyncio.sleep(0.3)
            assert not commit.done()
            taker.commit()
            assert await commit == "the lease of epoch 1 is lost"


async def test_renewals_do_not_wait_for_a_takeover(database: Database, sql: Sql, url: str) -> None:
    async with brokers(database, 2) as (dead, taker):
        await dead.take([COORDINATOR])
        end(sql, dead)
        with psycopg.connect(url, options="-c search_path=posthouse") as commit:
            commit.execute("SELECT check_lease(%s, 1)", [dead.lease.incarnation])
            taking = asyncio.create_task(taker.take([COORDINATOR]))
            await asyncio.sleep(0.3)
            assert not taking.done()
            assert await asyncio.wait_for(taker.lease.renew(), 1)
            commit.commit()
            assert await taking == {COORDINATOR}


async def test_calls_are_made_one_after_the_other(database: Database) -> None:
    async with brokers(database, 1) as (one,):
        await asyncio.gather(*(one.take([scope]) for scope in GROUPS))
        assert set(one.lease.scopes) == set(GROUPS)
        await asyncio.gather(*(one.release(scope) for scope in GROUPS[1:]))
        assert set(one.lease.scopes) == {GROUPS[0]}


async def test_a_database_that_is_away(postgres: PostgresServer, database: Database, sql: Sql) -> None:
    async with brokers(database, 1) as (one,):
        await one.take(GROUPS[:2])
        postgres.stop()
        try:
            with pytest.raises(DatabaseAway):
                await one.take([COORDINATOR])
            with pytest.raises(DatabaseAway):
                await one.release(GROUPS[0])
            assert set(one.lease.scopes) == {GROUPS[1]}
        finally:
            postgres.start()
        assert await one.take([COORDINATOR]) == {COORDINATOR}
