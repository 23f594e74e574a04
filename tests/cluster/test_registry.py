"""The registry: names and ids, live brokers, and a database that lost commits."""

import asyncio
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from posthouse.model.address import Address
from posthouse.model.brokers import ClusterBroker, ClusterView
from posthouse.model.clock import SystemClock
from posthouse.model.scopes import COORDINATOR, GROUPS
from posthouse.storage.shared.administration.administration import accept_loss
from posthouse.storage.shared.database import CommitsLost, Database
from posthouse.storage.shared.membership.identity import cluster_identity
from posthouse.storage.shared.membership.lease import take_lease
from posthouse.storage.shared.membership.loss_watch import LossWatch, Seen
from posthouse.storage.shared.membership.registry import (
    BrokerRegistry,
    NameTaken,
    NodeIdTaken,
    Registration,
    TablesTooNew,
)
from posthouse.storage.shared.membership.scopes import Scopes
from tests.cluster.holders import coordinator, fence

Sql = psycopg.Connection[tuple[object, ...]]


def registry(
    database: Database, name: str, incarnation: UUID | None = None, node_id: int | None = None
) -> BrokerRegistry:
    registration = Registration(
        name=name,
        incarnation=incarnation or uuid4(),
        addresses={"kafka": Address(name, 9092), "peer": Address("::1", 7)},
        rack="r1",
        version="0.1.0",
        node_id=node_id,
    )
    return BrokerRegistry(database, registration, heartbeat_seconds=0.05, live_seconds=0.5)


async def test_the_node_id_belongs_to_the_name(database: Database) -> None:
    first, second = registry(database, "a"), registry(database, "b")
    assert (await first.register(), await second.register()) == (1, 2)
    await first.stop()
    again = registry(database, "a")
    assert await again.register() == 1
    assert await registry(database, "c").register() == 3


async def test_a_node_id_that_a_broker_is_given(database: Database) -> None:
    assert await registry(database, "a", node_id=2).register() == 2
    assert [await registry(database, name).register() for name in "bcd"] == [1, 3, 4]
    with pytest.raises(NodeIdTaken, match="node_id 3 belongs to broker c"):
        await registry(database, "a", node_id=3).register()
    assert await registry(database, "a", node_id=7).register() == 7
    assert await registry(database, "a").register() == 7
    assert await registry(database, "e").register() == 2


async def test_brokers_that_register_at_once_get_different_ids(database: Database) -> None:
    made = [registry(database, f"b{number}") for number in range(8)]
    assert sorted(await asyncio.gather(*(each.register() for each in made))) == list(range(1, 9))


async def test_others_hear_when_a_broker_is_ready(database: Database) -> None:
    first, second = registry(database, "a"), registry(database, "b")
    await first.register()
    await second.register()
    first.is_ready = True
    await first.beat()
    assert [each.is_ready for each in (await second.beat()).brokers] == [True, False]
    again = registry(database, "a")
    await again.register()
    assert [each.is_ready for each in (await second.beat()).brokers] == [False, False]


async def test_tables_that_become_too_new(database: Database, sql: Sql) -> None:
    one = registry(database, "a")
    await one.register()
    one.start()
    sql.execute("INSERT INTO schema_version (version, compatible_from) VALUES (2, 1)")
    await one.beat()
    sql.execute("INSERT INTO schema_version (version, compatible_from) VALUES (3, 2)")
    async with asyncio.timeout(30):
        while one.failure is None:
            await asyncio.sleep(0.02)
    assert isinstance(one.failure, TablesTooNew)
    with pytest.raises(TablesTooNew, match="know version 2 of them; this release knows 1"):
        await registry(database, "b").register()
    await one.stop()


async def test_a_heartbeat_tells_of_all_live_brokers_and_the_holder(database: Database, sql: Sql) -> None:
    incarnation = uuid4()
    first, second = registry(database, "a", incarnation), registry(database, "b")
    await first.register()
    await second.register()
    lease = await take_lease(database, incarnation, clock=SystemClock())
    assert lease is not None
    scopes = Scopes(database, lease, Seen)
    await scopes.take([COORDINATOR, GROUPS[7]])
    sql.execute(
        "INSERT INTO committer (incarnation, path, number) VALUES (%s, 0, 5), (%s, 1, 2)", [incarnation] * 2
    )
    view = await second.beat()
    assert [each.name for each in view.brokers] == ["a", "b"]
    assert view.holder is not None
    assert view.holder.addresses == {"kafka": Address("a", 9092), "peer": Address("::1", 7)}
    assert (view.holder.id, view.holder.rack, view.epoch, view.commits) == (1, "r1", 1, 7)
    assert 6 < view.lease_seconds_left <= 8
    assert [each.lease_seconds_left > 6 for each in view.brokers] == [True, False]
    assert view.brokers[1].lease_seconds_left == 0
    assert view.holders == {COORDINATOR: incarnation, GROUPS[7]: incarnation}
    assert view.holder_of(GROUPS[7]) == view.holder
    assert view.holder_of(GROUPS[8]) is None
    await first.stop()
    view = await second.beat()
    assert [each.name for each in view.brokers] == ["b"]
    assert view.holder is None
    assert view.holder_incarnation == incarnation
    await lease.release()
    view = await second.beat()
    assert (view.lease_seconds_left, view.holders, view.epoch) == (0, {}, 1)
    await scopes.close()


async def test_a_heartbeat_tells_what_operators_want(database: Database, sql: Sql) -> None:
    first, second = registry(database, "a"), registry(database, "b")
    await first.register()
    await second.register()
    assert sql.execute("SELECT drain_broker('a', true), drain_broker('x', true)").fetchone() == (True, False)
    sql.execute("SELECT want_scope('groups/03', 'b')")
    assert sql.execute("SELECT want_scope('groups/03', 'x')").fetchone() == (False,)
    assert sql.execute("SELECT want_scope('groups/99', 'b')").fetchone() == (False,)
    view = await second.beat()
    assert [each.is_draining for each in view.brokers] == [True, False]
    assert view.wanted == {GROUPS[3]: 2}
    await registry(database, "a").register()  # it stays drained when it is started again
    assert [each.is_draining for each in (await second.beat()).brokers] == [True, False]
    sql.execute("SELECT drain_broker('a', false), want_scope('groups/03', NULL)")
    view = await second.beat()
    assert ([each.is_draining for each in view.brokers], view.wanted) == ([False, False], {})


async def test_a_broker_that_is_silent_is_not_live(database: Database) -> None:
    first, second = registry(database, "a"), registry(database, "b")
    await first.register()
    await second.register()
    second.start()
    await asyncio.sleep(0.8)
    assert [each.name for each in second.view.brokers] == ["b"]
    await second.stop()


async def test_a_broker_whose_name_was_taken_is_told(database: Database) -> None:
    first, second = registry(database, "a"), registry(database, "a")
    await first.register()
    first.start()
    await second.register()
    async with asyncio.timeout(5):
        while first.failure is None:
            await asyncio.sleep(0.02)
    assert isinstance(first.failure, NameTaken)
    assert "broker_name" in str(first.failure)
    await first.stop()


async def test_an_operator_confirms_a_loss(database: Database, sql: Sql) -> None:
    connection = await database.connect("test")
    await cluster_identity(connection)
    await connection.close()
    one = registry(database, "a")
    await one.register()
    sql.execute("UPDATE scope SET epoch = 9")
    await one.beat()
    assert one.loss is None
    sql.execute("UPDATE scope SET epoch = 7")
    await one.beat()
    assert one.loss is not None
    assert "epoch 7, and had 9" in one.loss
    await one.beat()
    assert one.loss is not None
    sql.execute("UPDATE cluster SET confirmed_losses = confirmed_losses + 1, loss = NULL")
    await one.beat()
    assert one.loss is None


async def test_a_loss_is_recorded_and_found_by_others(database: Database, sql: Sql) -> None:
    sql.execute("INSERT INTO cluster (id, secret) VALUES ('c', 's')")
    one, other = registry(database, "a"), registry(database, "b")
    await one.register()
    sql.execute("UPDATE scope SET epoch = 9")
    await one.beat()
    sql.execute("UPDATE scope SET epoch = 7")
    await one.beat()
    assert sql.execute("SELECT loss FROM cluster").fetchone() == ("the coordinator has epoch 7, and had 9",)
    await other.register()
    assert other.loss == one.loss
    assert await accept_loss(database._conninfo) == 1
    await one.beat()
    await other.beat()
    assert (one.loss, other.loss) == (None, None)
    assert sql.execute("SELECT loss FROM cluster").fetchone() == (None,)


async def test_a_loss_is_found_after_a_broker_that_knew_less_took_over(database: Database, sql: Sql) -> None:
    sql.execute("INSERT INTO cluster (id, secret) VALUES ('c', 's')")
    first = coordinator(sql, seconds=0)
    sql.execute("INSERT INTO committer (incarnation, path, number) VALUES (%s, 0, 1000)", [first])
    one = registry(database, "a")
    await one.register()
    sql.execute("UPDATE committer SET number = 900")
    coordinator(sql, seconds=0)
    await one.beat()
    assert one.loss is not None
    assert "number 900, and had 1000" in one.loss


async def test_a_heartbeat_that_was_asked_before_a_takeover_shows_no_loss(database: Database) -> None:
    one = registry(database, "a")
    await one.register()
    lease = await take_lease(database, one._registration.incarnation, clock=SystemClock())
    assert lease is not None
    one.took_lease(lease)
    ask = one._link.ask

    async def overtaken(*arguments: Any, **names: Any) -> Any:
        answer = await ask(*arguments, **names)
        one.took_coordinator(5)
        return answer

    one._link.ask = overtaken  # type: ignore[method-assign]
    await one.beat()
    assert one.loss is None
    one._link.ask = ask  # type: ignore[method-assign]
    await one.beat()
    assert one.loss is not None  # the scope that it took is not there


async def test_a_holder_finds_the_loss_of_what_it_has_acknowledged(database: Database, sql: Sql) -> None:
    """Also if no heartbeat has shown it, and another broker has taken over meanwhile."""
    one = registry(database, "a")
    await one.register()
    own = one._registration.incarnation
    lease = await take_lease(database, own, clock=SystemClock())
    assert lease is not None
    one.took_lease(lease)
    scopes = Scopes(database, lease, Seen)
    await scopes.take([COORDINATOR])
    one.took_coordinator(lease.scopes[COORDINATOR])
    sql.execute("INSERT INTO committer (incarnation, path, number) VALUES (%s, 0, 1000)", [own])
    await one.beat()
    lease.count_commits(lambda: 1050)
    fence(sql)
    coordinator(sql, seconds=8)
    await one.beat()
    assert one.loss is not None
    assert "number 1000, and had 1050" in one.loss
    await lease.release()
    await scopes.close()


async def test_a_member_finds_the_loss_of_what_it_has_acknowledged(database: Database, sql: Sql) -> None:
    sql.execute("INSERT INTO cluster (id, secret) VALUES ('c', 's')")
    one, other = registry(database, "a"), registry(database, "b")
    await one.register()
    await other.register()
    own = one._registration.incarnation
    sql.execute("INSERT INTO committer (incarnation, path, number) VALUES (%s, 0, 7), (%s, 1, 5)", [own, own])
    one.count_commits(lambda: 12)
    assert (await one.beat()).own_commits == 12
    assert one.loss is None
    sql.execute("UPDATE committer SET number = 4 WHERE path = 1")
    await one.beat()
    assert one.loss is not None
    assert "number 11, and had 12" in one.loss
    await other.beat()
    assert other.loss == one.loss
    # What was acknowledged before the loss was accepted counts no more; a new storage counts anew.
    await accept_loss(database._conninfo)
    await one.beat()
    assert one.loss is None
    one.count_commits(lambda: 11)
    await one.beat()
    assert one.loss is None


async def test_a_broker_that_misses_its_own_commits_takes_no_lease(database: Database, sql: Sql) -> None:
    """Though no heartbeat has shown them."""
    sql.execute("INSERT INTO cluster (id, secret) VALUES ('c', 's')")
    one = registry(database, "a")
    await one.register()
    own = one._registration.incarnation
    sql.execute("INSERT INTO committer (incarnation, path, number) VALUES (%s, 0, 7)", [own])
    one.count_commits(lambda: 8)
    with pytest.raises(CommitsLost, match="number 7, and had 8"):
        await take_lease(database, own, clock=SystemClock(), seen=one.seen)


@pytest.mark.parametrize("is_replaced", [False, True], ids=["stopped", "started again"])
async def test_lost_commits_of_a_broker_that_is_gone_are_found_by_others(
    database: Database, sql: Sql, is_replaced: bool
) -> None:
    sql.execute("INSERT INTO cluster (id, secret) VALUES ('c', 's')")
    one, gone = registry(database, "a"), registry(database, "b")
    await one.register()
    await gone.register()
    it = gone._registration.incarnation
    sql.execute("INSERT INTO committer (incarnation, path, number) VALUES (%s, 0, 7), (%s, 1, 5)", [it, it])
    await one.beat()
    await gone.stop()
    if is_replaced:
        await registry(database, "b").register()
    await one.beat()
    assert one.loss is None
    seen = one.seen
    sql.execute("UPDATE committer SET number = 4 WHERE path = 1")
    with pytest.raises(CommitsLost, match="number 11, and had 12"):
        await take_lease(database, one._registration.incarnation, clock=SystemClock(), seen=seen)
    sql.execute("UPDATE cluster SET loss = NULL")
    await one.beat()
    assert one.loss is not None
    assert "number 11, and had 12" in one.loss
    await accept_loss(database._conninfo)
    for _ in range(2):
        await one.beat()
        assert one.loss is None


def test_brokers_that_are_gone_are_forgotten_when_they_are_many() -> None:
    watch = LossWatch()
    live = ClusterBroker(id=1, name="a", incarnation=UUID(int=1), addresses={})
    for number in range(2, 3000):
        watch.see(ClusterView(brokers=(live,), commits_of={live.incarnation: number, UUID(int=number): 1}))
    assert len(watch.seen.commits_of) == 1000
    assert watch.seen.commits_of[live.incarnation] == 2999
    assert UUID(int=2999) in watch.seen.commits_of
    watch.see(ClusterView(brokers=(live,), commits_of={live.incarnation: 2998}))
    assert watch.loss is not None


async def test_commits_that_are_acknowledged_during_a_heartbeat_show_no_loss(
    database: Database, sql: Sql
) -> None:
    one = registry(database, "a")
    await one.register()
    own = one._registration.incarnation
    sql.execute("INSERT INTO committer (incarnation, path, number) VALUES (%s, 0, 1)", [own])
    acknowledged = 1
    one.count_commits(lambda: acknowledged)
    ask = one._link.ask

    async def overtaken(*arguments: Any, **names: Any) -> Any:
        nonlocal acknowledged
        answer = await ask(*arguments, **names)
        sql.execute("UPDATE committer SET number = 2")
        acknowledged = 2
        assert one.seen.own_commits == 2
        return answer

    one._link.ask = overtaken  # type: ignore[method-assign]
    await one.beat()
    assert one.loss is None
    one._link.ask = ask  # type: ignore[method-assign]
    await one.beat()
    assert one.loss is None


async def test_a_database_from_before_the_registration(database: Database, sql: Sql) -> None:
    """The loss counts, and not that the name seems to be taken."""
    sql.execute("INSERT INTO cluster (id, secret) VALUES ('c', 's')")
    one = registry(database, "a")
    await one.register()
    sql.execute("UPDATE scope SET epoch = 9")
    await one.beat()
    sql.execute("UPDATE scope SET epoch = 7")
    sql.execute("UPDATE broker SET incarnation = %s", [uuid4()])
    await one.beat()
    assert one.loss is not None
    await accept_loss(database._conninfo)
    await one.beat()
    assert one.loss is None
    assert [each.name for each in (await one.beat()).brokers] == ["a"]
    sql.execute("UPDATE broker SET incarnation = %s", [uuid4()])
    with pytest.raises(NameTaken, match="broker_name"):
        await one.beat()


async def test_a_lost_registration_without_other_losses(database: Database, sql: Sql) -> None:
    one, other = registry(database, "a"), registry(database, "b")
    assert await one.register() == 1
    sql.execute("DELETE FROM broker")
    await one.beat()
    assert one.node_id == 1
    sql.execute("DELETE FROM broker")
    await other.register()
    with pytest.raises(NameTaken, match="had id 1 and gets 2"):
        await one.beat()


async def test_registrations_wait_for_the_synchronous_standby(database: Database, sql: Sql) -> None:
    sql.execute("ALTER TABLE broker ADD COLUMN safe text DEFAULT current_setting('synchronous_commit')")
    one = registry(database, "a")
    await one.register()
    assert sql.execute("SELECT safe FROM broker").fetchall() == [("on",)]


ONE = UUID(int=1)
SEEN = ClusterView(holder_incarnation=ONE, epoch=3, commits=100, timeline=1)


@pytest.mark.parametrize("is_seen", [True, False])
async def test_what_a_holder_has_acknowledged_does_not_count_after_the_loss_was_accepted(
    database: Database, sql: Sql, is_seen: bool
) -> None:
    sql.execute("INSERT INTO cluster (id, secret) VALUES ('c', 's')")
    one = registry(database, "a")
    await one.register()
    lease = await take_lease(database, one._registration.incarnation, clock=SystemClock())
    assert lease is not None
    one.took_lease(lease)
    await one.beat()
    lease.count_commits(lambda: 1000)
    if is_seen:
        await one.beat()
        assert one.loss is not None
    await accept_loss(database._conninfo)
    for _ in range(3):
        await one.beat()
        assert one.loss is None
    assert sql.execute("SELECT loss FROM cluster").fetchone() == (None,)
    await lease.release()


@pytest.mark.parametrize(
    "later",
    [
        replace(SEEN, commits=101),
        replace(SEEN, epoch=4, holder_incarnation=UUID(int=2), commits=1),
        replace(SEEN, holder_incarnation=None, commits=0),
        replace(SEEN, timeline=2),
    ],
)
def test_what_is_no_loss(later: ClusterView) -> None:
    watch = LossWatch()
    watch.see(SEEN)
    watch.see(later)
    assert watch.loss is None


@pytest.mark.parametrize(
    "later",
    [
        replace(SEEN, commits=99, timeline=2),
        replace(SEEN, epoch=2, commits=500, timeline=2),
        replace(SEEN, holder_incarnation=UUID(int=2), timeline=2),
    ],
)
def test_what_is_a_loss(later: ClusterView) -> None:
    watch = LossWatch()
    watch.see(SEEN)
    watch.see(later)
    assert watch.loss is not None
    assert "a standby was promoted" in watch.loss
    watch.see(SEEN)
    assert watch.loss is not None


async def test_all_brokers_find_one_identity(database: Database) -> None:
    one, other = await database.connect("a"), await database.connect("b")
    found = await asyncio.gather(cluster_identity(one), cluster_identity(other))
    assert found[0] == found[1]
    assert len(found[0].secret) == 32
    assert found[0].secret.hex() not in repr(found[0])
    await one.close()
    await other.close()


async def test_heartbeats_come_more_often_while_scopes_move(database: Database) -> None:
    one = BrokerRegistry(database, registry(database, "a")._registration, heartbeat_seconds=3600)
    await one.register()
    one.start()
    waiting = asyncio.create_task(one.next_view())
    await asyncio.sleep(0.3)
    assert not waiting.done()
    one.hurry(True)
    assert [each.name for each in (await asyncio.wait_for(waiting, 30)).brokers] == ["a"]
    await asyncio.wait_for(one.next_view(), 30)
    one.hurry(False)
    await asyncio.wait_for(one.next_view(), 30)  # it was due already
    waiting = asyncio.create_task(one.next_view())
    await asyncio.sleep(1)
    assert not waiting.done()
    waiting.cancel()
    await one.stop()
