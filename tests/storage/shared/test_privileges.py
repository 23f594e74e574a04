"""A broker runs, with all its housekeeping, as a role that may not create or change tables."""

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from posthouse.model.clock import ManualClock, SystemClock
from posthouse.storage.retention import nothing_elsewhere, nothing_needed
from posthouse.storage.shared.administration.privileges import grant_to_broker
from posthouse.storage.shared.administration.status import read_status
from posthouse.storage.shared.database import Database
from posthouse.storage.shared.membership.identity import cluster_identity
from posthouse.storage.shared.membership.inspection import inspect
from posthouse.storage.shared.membership.lease import take_lease
from posthouse.storage.shared.membership.registry import BrokerRegistry, Registration
from posthouse.storage.shared.objects.memory import MemoryObjectStore
from tests.postgres import MIGRATED, PostgresServer, new_database
from tests.storage.batches import append, make_topic, read_all
from tests.storage.shared.opened import TestLease, make_shared
from tests.storage.shared.shared_logs import SharedLogs
from tests.storage.shared.test_consolidation import consolidation, fill
from tests.storage.shared.test_garbage import garbage
from tests.storage.shared.test_retention import removal, retention, timed
from tests.storage.shared.test_slots import slots, states
from tests.storage.shared.transfer.storages import do_export, do_import, make_stores, opened_files
from tests.storage.shared.transfer.storages import fill as transfer_fill


@dataclass(frozen=True, slots=True, kw_only=True)
class Limited:
    owner: Database
    broker: Database
    """As the role of brokers."""
    url: str
    """Of the same."""


@pytest.fixture
async def limited(postgres: PostgresServer) -> AsyncIterator[Limited]:
    role = "broker_" + os.urandom(4).hex()
    postgres.execute(f"CREATE ROLE {role} LOGIN")
    with new_database(postgres, MIGRATED) as url:
        owner = Database(url)
        async with await owner.connect("tests") as connection:
            await cluster_identity(connection)
            await grant_to_broker(connection, role)
        limited = url.replace("postgres@", f"{role}@")
        yield Limited(owner=owner, broker=Database(limited), url=limited)
    postgres.execute(f"DROP ROLE {role}")


async def test_a_storage_commits_and_reads(limited: Limited, clock: ManualClock) -> None:
    await inspect(limited.broker)
    lease = TestLease()
    held = await take_lease(limited.broker, lease.incarnation, clock=clock)
    assert held is not None and await held.renew()
    await held.release()
    addresses = Registration(name="one", incarnation=lease.incarnation, addresses={}, rack=None, version="")
    registry = BrokerRegistry(limited.broker, addresses)
    await registry.register()
    await registry.stop()

    storage = await make_shared(limited.broker, MemoryObjectStore(clock), clock, inline_bytes=200)
    await storage.open()
    topic = make_topic("orders", 2)
    await storage.create_topics([topic])
    [one, two] = topic.partition_ids()
    await storage.commit([append(one, b"small")])
    await storage.commit([append(two, b"large" * 100)])
    assert await read_all(storage, one) == {0: b"small"}
    assert await read_all(storage, two) == {0: b"large" * 100}
    await storage.delete_topics([topic.id])
    await storage.close()
    async with await limited.broker.connect("tests") as connection:
        assert (await read_status(connection)).lease.epoch >= 1


async def test_housekeeping(limited: Limited, clock: ManualClock) -> None:
    async with await limited.broker.connect("tests") as connection:
        logs = SharedLogs(limited.broker, connection, clock)
        await logs.take_lease()
        [kept] = await logs.create("kept", retention_ms="-1")
        [old] = await logs.create("old", retention_ms="1000")
        [gone] = await logs.create("gone")
        await fill(logs, kept)
        await timed(logs, old, clock)
        await fill(logs, gone)
        before = await logs.read(kept)
        await slots(logs).run_once()
        await consolidation(logs).run_once()
        await (await retention(logs)).enforce(nothing_elsewhere, nothing_needed)
        await connection.execute("UPDATE topic SET deleted_at = now() WHERE name = 'gone'")
        await removal(logs).run_once()
        await garbage(logs).run_once()
        await slots(logs).run_once()
        assert (await states(logs))[0] == "free"
        assert await logs.read(kept) == before
        await logs.check()


async def test_import_and_export(limited: Limited, tmp_path: Path) -> None:
    clock = SystemClock()
    async with opened_files(tmp_path / "data", clock) as storage:
        await transfer_fill(storage)
    stores = make_stores(limited.url, tmp_path / "objects", clock)
    await do_import(tmp_path / "data", stores, clock)
    report = await do_export(tmp_path / "back", stores, clock)
    assert report.topics == 3
    await stores.close()


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE posthouse.more (id integer)",
        "DROP TABLE posthouse.broker",
        "ALTER TABLE posthouse.broker ADD more integer",
        "INSERT INTO posthouse.schema_version (version, compatible_from) VALUES (2, 2)",
        "CREATE FUNCTION posthouse.more() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
        "DROP FUNCTION posthouse.take_lease",
        "CREATE SCHEMA more",
    ],
)
async def test_no_more_than_that(limited: Limited, statement: str) -> None:
    async with await limited.broker.connect("tests") as connection:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await connection.execute(statement.encode())


async def test_tables_of_later_versions_are_granted_too(limited: Limited) -> None:
    async with await limited.owner.connect("tests") as connection:
        await connection.execute("CREATE TABLE later (id bigint GENERATED ALWAYS AS IDENTITY, data text)")
    async with await limited.broker.connect("tests") as connection:
        await connection.execute("INSERT INTO later (data) VALUES ('more')")
        await connection.execute("TRUNCATE later")
