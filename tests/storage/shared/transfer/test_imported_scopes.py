"""What was imported belongs to no scopes of namespaces until the coordinator has found out which."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from posthouse.model.clock import SystemClock
from posthouse.model.errors import NotLeader, Unavailable
from posthouse.model.scopes import COORDINATOR, HOUSEKEEPING, NAMESPACES, Scope
from posthouse.model.topic_config import TopicConfig
from posthouse.storage.operations import Put
from posthouse.storage.outcomes import OperationRefused
from posthouse.storage.shared.database import Database, DatabaseAway
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.shared.logs import definitions
from posthouse.storage.shared.stores import SharedStores
from posthouse.storage.spaces import Space
from tests.postgres import MIGRATED, PostgresServer, new_database
from tests.storage.batches import append, make_topic, read_all
from tests.storage.shared.lost_answers import LostAnswers
from tests.storage.shared.opened import release, serve, take_lease
from tests.storage.shared.transfer.storages import (
    contents,
    do_export,
    do_import,
    make_stores,
    opened_files,
    opened_shared,
)

SHOP, OTHER = NAMESPACES[3], NAMESPACES[9]
SCOPES: Mapping[str, Scope] = {
    "source": SHOP,
    "there": OTHER,
    ":queue": SHOP,
    ":schedule": OTHER,
    "later": OTHER,
}


@pytest.fixture
async def imported(tmp_path: Path, stores: SharedStores, real_clock: SystemClock) -> SharedStores:
    data = tmp_path / "data"
    async with opened_files(data, real_clock) as storage:
        names = ["source", "there", ":queue", ":schedule", "plain"]
        topics = [make_topic(name, 2, id=None) for name in names]
        await storage.create_topics(topics)
        await storage.commit([append(topic.partition(1), b"imported") for topic in topics])
        await storage.commit([Put(Space.QUEUES, b"\0\0\0\4shopmails", b"definition")])
        # As exported from a cluster, and not true any more.
        await storage.commit([Put(Space.SOURCES, b"gone", bytes([5]))])
    await do_import(data, stores, real_clock)
    return stores


@asynccontextmanager
async def broker(stores: SharedStores, *scopes: Scope) -> AsyncIterator[SharedStorage]:
    lease = await take_lease(Database(stores.database._conninfo), scopes=scopes)
    storage = stores.storage(lease, defaults=TopicConfig())
    try:
        await storage.open()
        yield storage
    finally:
        await storage.close()
        await release(stores.database, lease)


async def check_assigned(stores: SharedStores) -> None:
    """As other brokers see it."""
    async with broker(stores, SHOP) as member:
        assert not member.awaits_scopes
        by_name = {topic.name: topic for topic in member.topics.values()}
        found = {name: topic.scope for name, topic in by_name.items()}
        assert found == {name: scope for name, scope in SCOPES.items() if name != "later"} | {"plain": None}
        assert await member.shared_state.of_space(Space.SOURCES) == {
            b"source": bytes([3]),
            b"there": bytes([9]),
            b"later": bytes([9]),
        }
        later = make_topic("later")
        await member.create_topics([later])
        assert member.topics[later.id].scope == OTHER
        await member.commit([append(by_name["plain"].partition(0), b"x")])
        await serve(member, SHOP)
        for name, scope in SCOPES.items():
            topic = later if name == "later" else by_name[name]
            for partition in topic.partition_ids():
                [outcome] = await member.commit([replace(append(partition, b"x"), required=False)])
                assert isinstance(outcome.refusal, NotLeader) is (scope != SHOP)
        assert await read_all(member, by_name["source"].partition(1)) == {0: b"imported", 1: b"x"}


async def test_nothing_is_served_before_the_coordinator_has_assigned_scopes(imported: SharedStores) -> None:
    async with broker(imported, COORDINATOR, OTHER) as coordinator:
        await coordinator.coordinate()
        assert coordinator.awaits_scopes
        with pytest.raises(Unavailable, match="no coordinator has looked through"):
            await coordinator.take_namespaces(OTHER)
        with pytest.raises(NotLeader):
            await coordinator.announce_sources(["x"], OTHER)
        with pytest.raises(Unavailable, match="no coordinator has loaded it"):
            async with broker(imported, SHOP):
                pass
        await coordinator.assign_scopes(SCOPES)
        assert not coordinator.awaits_scopes
        by_name = {topic.name: topic for topic in coordinator.topics.values()}
        assert {name: topic.scope for name, topic in by_name.items()} == {
            name: SCOPES.get(name) for name in by_name
        }
        with pytest.raises(OperationRefused):
            await coordinator.commit([append(by_name["there"].partition(0), b"x")])
        await serve(coordinator, OTHER)
        await coordinator.commit([append(by_name["there"].partition(0), b"x")])
    await check_assigned(imported)


async def test_nothing_is_removed_before_scopes_are_assigned(imported: SharedStores) -> None:
    """Queues may need it. Which ones there are is not known before."""
    async with broker(imported, COORDINATOR, *HOUSEKEEPING) as coordinator:
        for scope in HOUSEKEEPING:
            await coordinator.log_scopes.take(scope)
        expired = {
            topic.id: replace(topic, config=topic.config.with_overrides({"retention.ms": "1"}))
            for topic in coordinator.topics.values()
        }
        coordinator.adopt_topics(list(expired.values()))
        for work in (coordinator.enforce_retention, coordinator.compact):
            with pytest.raises(Unavailable, match="no coordinator has looked through"):
                await work()
        await coordinator.assign_scopes(SCOPES)
        coordinator.adopt_topics(
            [replace(topic, config=expired[topic.id].config) for topic in coordinator.topics.values()]
        )
        await coordinator.enforce_retention()
        starts = {
            topic.name: coordinator.bounds(topic.partition(1)).start for topic in coordinator.topics.values()
        }
        assert starts == {name: int(name == "plain") for name in starts}


async def test_a_coordinator_that_is_followed_before_it_has_assigned_scopes(imported: SharedStores) -> None:
    async with broker(imported, COORDINATOR) as first, broker(imported, COORDINATOR) as second:
        with pytest.raises(Unavailable):
            await first.assign_scopes(SCOPES)
        assert second.awaits_scopes
        await second.assign_scopes(SCOPES)
    await check_assigned(imported)


async def test_a_broker_that_coordinated_before_learns_that_scopes_were_assigned(
    imported: SharedStores,
) -> None:
    """It was not fenced: it has given the scope back."""
    async with broker(imported, COORDINATOR, OTHER) as first:
        await first.stop_coordinating()
        async with await imported.database.connect("tests") as connection:
            await connection.execute("UPDATE scope SET holder = NULL WHERE name = 'coordinator'")
        async with broker(imported, COORDINATOR) as second:
            await second.assign_scopes(SCOPES)
        assert first.awaits_scopes
        await first.take_namespaces(OTHER)
        assert not first.awaits_scopes
        assert {topic.name for topic in first.topics.values() if topic.scope == OTHER} == {
            "there",
            ":schedule",
        }
    await check_assigned(imported)


async def test_an_assignment_whose_answer_is_lost(
    imported: SharedStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(definitions, "_PAUSES", (0.0, 0.0, 0.0))
    async with broker(imported, COORDINATOR) as coordinator:
        lost = LostAnswers(imported.database)
        lost.is_silent = True
        with pytest.raises(DatabaseAway):
            await coordinator.assign_scopes(SCOPES)
        lost.is_silent = False
        assert coordinator.awaits_scopes
        await coordinator.refresh_definitions()
        assert all(topic.scope is None for topic in coordinator.topics.values())
        lost.count = 4
        with pytest.raises(DatabaseAway):
            await coordinator.assign_scopes(SCOPES)
        await coordinator.assign_scopes(SCOPES)
        assert not coordinator.awaits_scopes
    await check_assigned(imported)


async def test_a_cluster_with_several_schedules_goes_elsewhere(
    tmp_path: Path, postgres: PostgresServer, stores: SharedStores, real_clock: SystemClock
) -> None:
    async with opened_shared(stores) as storage:
        assert not storage.awaits_scopes
        topics = [
            replace(make_topic(name, 2, id=None), scope=scope)
            for name, scope in [
                (":schedule", SHOP),
                (":schedule:09", OTHER),
                ("source", SHOP),
                ("plain", None),
            ]
        ]
        await storage.create_topics(topics)
        await storage.announce_sources(["source", "later"], SHOP)
        await storage.commit([append(topic.partition(0), topic.name.encode()) for topic in topics])
        await storage.commit(
            [
                Put(Space.SCHEDULE, b"\3key", b"of one"),
                Put(Space.SCHEDULE, b"\11key", b"of another"),
                Put(Space.DUE, b"\0\0\0\4shop1", b"due"),
                Put(Space.REFERRALS, bytes(36), b"left"),
                Put(Space.QUEUES, b"\0\0\0\4shopmails", b"definition"),
            ]
        )
    async with opened_shared(stores) as storage:
        before = await contents(storage)
    assert {Space.SCHEDULE, Space.DUE, Space.REFERRALS, Space.QUEUES} <= set(before["state"])
    await do_export(tmp_path / "data", stores, real_clock)
    async with opened_files(tmp_path / "data", real_clock) as files:
        assert await contents(files) == before
    with new_database(postgres, MIGRATED) as url:
        elsewhere = make_stores(url, tmp_path / "elsewhere", real_clock)
        await do_import(tmp_path / "data", elsewhere, real_clock)
        async with opened_shared(elsewhere) as storage:
            assert storage.awaits_scopes
            assert await contents(storage) == before
            assert {topic.scope for topic in storage.topics.values()} == {None}
            scopes = {topic.name: topic.scope for topic in topics if topic.scope is not None}
            await storage.assign_scopes(scopes | {"later": SHOP})
        async with opened_shared(elsewhere) as storage:
            assert not storage.awaits_scopes
            assert await contents(storage) == before
            found = {topic.name: topic.scope for topic in storage.topics.values()}
            assert found == {topic.name: topic.scope for topic in topics}
        await elsewhere.close()
