"""New versions of the tables beside brokers at work: locks, and brokers that are too old."""

import asyncio
from uuid import uuid4

import psycopg
import pytest

from posthouse.model.errors import Unavailable
from posthouse.storage.shared import migrations
from posthouse.storage.shared.administration.administration import migrate_storage
from posthouse.storage.shared.migrations import Migration

Sql = psycopg.Connection[tuple[object, ...]]


def add_version(monkeypatch: pytest.MonkeyPatch, *, compatible_from: int) -> None:
    known = migrations.migrations()
    later = Migration(
        version=2, compatible_from=compatible_from, statements="ALTER TABLE topic ADD COLUMN note text;"
    )
    monkeypatch.setattr(migrations, "migrations", lambda: [*known, later])


async def test_a_migration_gives_way_to_the_work_of_brokers(
    url: str, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_version(monkeypatch, compatible_from=1)
    with psycopg.connect(url, options="-c search_path=posthouse") as reader:
        reader.execute("SELECT count(*) FROM topic")  # holds its lock until the transaction ends
        migration = asyncio.create_task(migrate_storage(url))
        await asyncio.to_thread(until_it_waits, sql)
        await asyncio.to_thread(sql.execute, "SELECT count(*) FROM topic")
        assert not migration.done()
        reader.rollback()
    assert await asyncio.wait_for(migration, 30) == ([2], 2)
    assert sql.execute("SELECT compatible_from FROM schema_version WHERE version = 2").fetchone() == (1,)


def until_it_waits(sql: Sql) -> None:
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'posthouse.topic'::regclass"
    while sql.execute(waiting).fetchone() == (0,):
        pass


async def test_tables_that_stay_in_use_are_not_changed(
    url: str, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_version(monkeypatch, compatible_from=1)
    monkeypatch.setattr(migrations, "_LONGEST_SECONDS", 0.5)
    with psycopg.connect(url, options="-c search_path=posthouse") as reader:
        reader.execute("SELECT count(*) FROM topic")
        with pytest.raises(Unavailable, match=r"the tables were in use for 0\.5 s"):
            await migrate_storage(url)
    assert sql.execute("SELECT max(version) FROM schema_version").fetchone() == (1,)


@pytest.mark.parametrize("compatible_from", [1, 2])
async def test_a_broker_that_sleeps_is_fenced_if_it_cannot_use_the_tables(
    url: str, sql: Sql, monkeypatch: pytest.MonkeyPatch, compatible_from: int
) -> None:
    add_version(monkeypatch, compatible_from=compatible_from)
    who = uuid4()
    sql.execute("SELECT register_broker('a', %s, '{}', NULL, '0.1', 1)", [who])
    sql.execute("SELECT take_lease(%s, 3600)", [who])
    if compatible_from == 2:
        with pytest.raises(Unavailable, match=r"brokers that run: a \(release 0.1\)"):
            await migrate_storage(url)
    sql.execute("UPDATE broker SET seen_at = clock_timestamp() - interval '1 minute'")
    await migrate_storage(url)
    may_commit = sql.execute("SELECT count(*) FROM writer WHERE holder = %s", [who]).fetchone()
    assert may_commit == (1 if compatible_from == 1 else 0,)
    found = sql.execute("SELECT register_broker('a', %s, '{}', NULL, '0.1', 1)", [uuid4()]).fetchone()
    assert found == ({"id": 1} if compatible_from == 1 else {"needs": 2},)
