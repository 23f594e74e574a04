"""The backup of the catalog: what it misses, it has later, and what is lost with it is named."""

import asyncio
import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from posthouse.model.clock import ManualClock
from posthouse.storage.files.catalog import catalog
from posthouse.storage.files.catalog.catalog import BACKUP
from posthouse.storage.files.engine import FileStorage
from posthouse.storage.files.system.data_directory import CATALOG, OsDataDirectory
from posthouse.storage.operations import Put
from posthouse.storage.spaces import Space
from tests.storage.batches import append, make_topic

_LARGE = b"v" * 60_000


class TightDirectory(OsDataDirectory):
    """Has no space for a backup that grows, while it is `tight`."""

    def __init__(self, directory: Path, *, tight: bool) -> None:
        super().__init__(directory)
        self._tight = tight
        self._backups: list[sqlite3.Connection] = []

    def connect(self, name: str) -> sqlite3.Connection:
        connection = super().connect(name)
        if name == BACKUP:
            self._backups.append(connection)
            self._limit(connection)
        return connection

    def loosen(self) -> None:
        self._tight = False
        self._limit(self._backups[-1])

    def _limit(self, connection: sqlite3.Connection) -> None:
        # It is never less than what the file has already.
        connection.execute(f"PRAGMA max_page_count={1 if self._tight else 1_000_000}")


class ImpatientDirectory(OsDataDirectory):
    """Does not wait for locks."""

    def connect(self, name: str) -> sqlite3.Connection:
        connection = super().connect(name)
        connection.execute("PRAGMA busy_timeout=1")
        return connection


def make(directory: Path, data_directory: OsDataDirectory) -> FileStorage:
    return FileStorage(directory, clock=ManualClock(), journal_bytes=200_000, data_directory=data_directory)


def damage_catalog(directory: Path) -> None:
    with (directory / CATALOG).open("r+b") as file:
        file.write(b"\xa5" * 100)


async def put(storage: FileStorage, key: bytes, value: bytes) -> None:
    await storage.commit([Put(Space.OFFSETS, key, value)])
    await storage.checkpoint()


async def life(directory: Path, data_directory: OsDataDirectory, **values: bytes) -> dict[bytes, bytes]:
    """What was there when a storage was opened; it is closed again with `values` besides."""
    storage = make(directory, data_directory)
    await storage.open()
    found = storage.take_state(Space.OFFSETS)
    for key, value in values.items():
        await put(storage, key.encode(), value)
    await storage.close()
    return found


async def test_what_it_missed_comes_with_the_next_change(tmp_path: Path) -> None:
    await life(tmp_path, OsDataDirectory(tmp_path), first=b"1")
    data_directory = TightDirectory(tmp_path, tight=True)
    storage = make(tmp_path, data_directory)
    await storage.open()
    await put(storage, b"missed", _LARGE)
    data_directory.loosen()
    await put(storage, b"last", b"3")
    await storage.close()
    damage_catalog(tmp_path)
    found = await life(tmp_path, OsDataDirectory(tmp_path))
    assert found == {b"first": b"1", b"missed": _LARGE, b"last": b"3"}


async def test_a_broker_starts_though_its_backup_cannot_catch_up(tmp_path: Path) -> None:
    await life(tmp_path, OsDataDirectory(tmp_path), first=b"1")
    behind = (tmp_path / BACKUP).read_bytes()
    await life(tmp_path, OsDataDirectory(tmp_path), missed=_LARGE)
    (tmp_path / BACKUP).write_bytes(behind)
    found = await life(tmp_path, TightDirectory(tmp_path, tight=True), last=b"3")
    assert found == {b"first": b"1", b"missed": _LARGE}
    await life(tmp_path, OsDataDirectory(tmp_path))
    damage_catalog(tmp_path)
    found = await life(tmp_path, OsDataDirectory(tmp_path))
    assert found == {b"first": b"1", b"missed": _LARGE, b"last": b"3"}


async def test_a_backup_that_another_program_has_locked_does_not_hold_up_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await life(tmp_path, OsDataDirectory(tmp_path), first=b"1")
    behind = (tmp_path / BACKUP).read_bytes()
    await life(tmp_path, OsDataDirectory(tmp_path), missed=b"2")
    (tmp_path / BACKUP).write_bytes(behind)
    monkeypatch.setattr(catalog, "_LOCKED_SECONDS", 0.1)
    with closing(sqlite3.connect(tmp_path / BACKUP, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        found = await asyncio.wait_for(life(tmp_path, ImpatientDirectory(tmp_path), last=b"3"), 60)
        assert found == {b"first": b"1", b"missed": b"2"}
        assert "another program has kept the database locked for 0.1 s" in caplog.text
        other.execute("ROLLBACK")
    await life(tmp_path, OsDataDirectory(tmp_path))
    damage_catalog(tmp_path)
    found = await life(tmp_path, OsDataDirectory(tmp_path))
    assert found == {b"first": b"1", b"missed": b"2", b"last": b"3"}


async def test_a_new_topic_does_not_wait_for_the_backup(tmp_path: Path) -> None:
    storage = make(tmp_path, OsDataDirectory(tmp_path))
    await storage.open()
    topic = make_topic("orders")
    with closing(sqlite3.connect(tmp_path / BACKUP, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")  # the backup cannot be written for as long as this is open
        await asyncio.wait_for(storage.create_topics([topic]), 3)
        assert storage.topics[topic.id].name == "orders"
        other.execute("ROLLBACK")
    await storage.close()
    damage_catalog(tmp_path)
    storage = make(tmp_path, OsDataDirectory(tmp_path))
    await storage.open()
    assert storage.topics[topic.id].name == "orders"
    await storage.close()


async def test_a_topic_that_the_backup_does_not_know_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker was killed, and the catalog damaged, before the backup had the topic."""
    await life(tmp_path, OsDataDirectory(tmp_path), first=b"1")
    behind = (tmp_path / BACKUP).read_bytes()
    topic = make_topic("orders")
    storage = make(tmp_path, OsDataDirectory(tmp_path))
    await storage.open()
    await storage.create_topics([topic])
    await storage.commit([append(next(iter(topic.partition_ids())), b"kept")])
    await storage.close()
    (tmp_path / BACKUP).write_bytes(behind)
    damage_catalog(tmp_path)
    with caplog.at_level(logging.ERROR):
        assert await life(tmp_path, OsDataDirectory(tmp_path)) == {b"first": b"1"}
    assert f"topics/{topic.id.hex()} is the directory of a topic" in caplog.text
    assert list((tmp_path / "topics" / topic.id.hex()).glob("*.log"))
