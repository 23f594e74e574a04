"""An import or export that is killed at any of its steps goes on when it is repeated."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from posthouse.model.clock import SystemClock
from posthouse.storage.files.catalog.catalog import Catalog
from posthouse.storage.shared.administration.transfer import importing, local_target
from posthouse.storage.shared.administration.transfer.local_target import LocalTarget
from posthouse.storage.shared.stores import SharedStores
from tests.postgres import MIGRATED, PostgresServer, cluster_only, new_database
from tests.storage.shared.crashes import Crash
from tests.storage.shared.transfer.storages import (
    contents,
    do_export,
    do_import,
    fill,
    make_stores,
    opened_files,
    opened_shared,
)
from tests.storage.shared.transfer.test_import_export import check_books

pytestmark = cluster_only

_WRITES = ("INSERT", "TRUNCATE", "UPDATE", "SELECT begin_import", "SELECT import_segments", "SELECT finish")


class Steps:
    """Counts the writes of a transfer, and ends it before or after one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.count = 0
        self.crash_at: int | None = None

    def step(self) -> None:
        self.count += 1
        if self.count == self.crash_at:
            raise Crash

    def of_statements(self) -> None:
        execute, execute_many = psycopg.AsyncConnection.execute, psycopg.AsyncCursor.executemany

        async def stepped(connection: Any, query: Any, *values: Any, **options: Any) -> Any:
            text = " ".join((query if isinstance(query, str) else str(query)).split())
            if not text.startswith(_WRITES):
                return await execute(connection, query, *values, **options)
            self.step()
            found = await execute(connection, query, *values, **options)
            self.step()
            return found

        async def stepped_many(cursor: Any, query: Any, rows: Any, **options: Any) -> None:
            self.step()
            await execute_many(cursor, query, rows, **options)

        self._monkeypatch.setattr(psycopg.AsyncConnection, "execute", stepped)
        self._monkeypatch.setattr(psycopg.AsyncCursor, "executemany", stepped_many)

    def of_call(self, owner: Any, name: str) -> None:
        call = getattr(owner, name)

        def stepped(*arguments: Any, **more: Any) -> Any:
            self.step()
            found = call(*arguments, **more)
            self.step()
            return found

        self._monkeypatch.setattr(owner, name, stepped)

    @contextmanager
    def crash(self, number: int) -> Iterator[None]:
        self.count, self.crash_at = 0, number
        try:
            yield
        finally:
            self.crash_at = None


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(monkeypatch)


async def attempt(steps: Steps, number: int, work: Callable[[], Awaitable[object]]) -> bool:
    """Whether the work was done without a crash."""
    with steps.crash(number):
        try:
            await work()
            return True
        except Crash:
            return False


@asynccontextmanager
async def empty(server: PostgresServer, place: Path, clock: SystemClock) -> AsyncIterator[SharedStores]:
    with new_database(server, MIGRATED) as url:
        stores = make_stores(url, place, clock)
        yield stores
        await stores.close()


async def test_a_killed_import_goes_on(
    tmp_path: Path,
    postgres: PostgresServer,
    real_clock: SystemClock,
    steps: Steps,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importing, "_OBJECT_BYTES", 1500)
    async with opened_files(tmp_path / "data", real_clock) as storage:
        await fill(storage, 5)
    async with opened_files(tmp_path / "data", real_clock) as storage:
        before = await contents(storage)
    steps.of_statements()
    number, is_done = 0, False
    while not is_done:
        number += 1
        async with empty(postgres, tmp_path / f"objects-{number}", real_clock) as stores:
            work = partial(do_import, tmp_path / "data", stores, real_clock)
            is_done = await attempt(steps, number, work)
            if not is_done and not await is_finished(stores):
                await work()
            async with opened_shared(stores) as shared:
                assert await contents(shared) == before
            await check_books(stores)
    assert number > 20


async def is_finished(stores: SharedStores) -> bool:
    """Whether the import is: only the last step was not seen to succeed."""
    async with await stores.database.connect("tests") as connection:
        found = await connection.execute("SELECT FROM local_import WHERE finished_at IS NOT NULL")
        return await found.fetchone() is not None


class ExportedCatalog(Catalog):
    """Not that of the storage that is opened to compare: it would keep its lock, unlike a killed process."""


async def test_a_killed_export_goes_on(
    tmp_path: Path,
    stores: SharedStores,
    real_clock: SystemClock,
    steps: Steps,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with opened_files(tmp_path / "data", real_clock) as storage:
        await fill(storage, 5)
    await do_import(tmp_path / "data", stores, real_clock)
    async with opened_shared(stores) as shared:
        before = await contents(shared)
    monkeypatch.setattr(local_target, "Catalog", ExportedCatalog)
    for owner, name in [
        (LocalTarget, "begin"),
        (LocalTarget, "write_catalog"),
        (LocalTarget, "finish"),
        (local_target, "_write"),
        (ExportedCatalog, "open"),
        (ExportedCatalog, "put_topics"),
        (ExportedCatalog, "checkpoint"),
        (Path, "rename"),
    ]:
        steps.of_call(owner, name)
    number, is_done = 0, False
    while not is_done:
        number += 1
        target = tmp_path / f"out-{number}"
        is_done = await attempt(steps, number, partial(do_export, target, stores, real_clock))
        if not is_done and not target.exists():
            await do_export(target, stores, real_clock)
        async with opened_files(target, real_clock) as storage:
            assert await contents(storage) == before
    assert number > 40


async def test_an_export_begins_anew_if_the_storage_has_changed(
    tmp_path: Path, stores: SharedStores, real_clock: SystemClock, steps: Steps
) -> None:
    async with opened_files(tmp_path / "data", real_clock) as storage:
        await fill(storage, 5)
    await do_import(tmp_path / "data", stores, real_clock)
    steps.of_call(LocalTarget, "write_catalog")
    assert not await attempt(steps, 1, lambda: do_export(tmp_path / "out", stores, real_clock))
    async with await stores.database.connect("tests") as connection:
        await connection.execute("UPDATE lease SET epoch = epoch + 1")
    async with opened_shared(stores) as shared:
        topics = [topic.id for topic in shared.topics.values() if topic.name == "plain"]
        await shared.delete_topics(topics)
    async with opened_shared(stores) as shared:
        before = await contents(shared)
    await do_export(tmp_path / "out", stores, real_clock)
    async with opened_files(tmp_path / "out", real_clock) as storage:
        assert await contents(storage) == before
    assert not list((tmp_path / "out").glob("segments"))
