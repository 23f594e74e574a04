"""Whatever keeps the catalog from being opened is a sentence that says what to do, and changes nothing."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from posthouse.cli.sentences import explain
from posthouse.model.clock import ManualClock
from posthouse.model.errors import DataDamaged, StorageFull, Unavailable
from posthouse.storage.files.catalog.catalog import BACKUP
from posthouse.storage.files.catalog.rows import FORMAT, put_meta
from posthouse.storage.files.engine import FileStorage
from posthouse.storage.files.system.data_directory import CATALOG, OsDataDirectory
from tests.storage.batches import append, make_topic, read_all
from tests.storage.stores import file_storage

TOPIC = make_topic()
[PARTITION] = TOPIC.partition_ids()


class Failing(sqlite3.Connection):
    """Statements that begin with `verb` fail with `code`, as SQLite reports it."""

    verb = ""
    code = sqlite3.SQLITE_OK
    text = ""

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if self.verb and sql.startswith(self.verb):
            error = sqlite3.OperationalError(self.text)
            error.sqlite_errorcode = self.code
            raise error
        return super().execute(sql, *parameters)


class FailingDirectory(OsDataDirectory):
    def __init__(self, directory: Path, name: str, verb: str, code: int, text: str) -> None:
        super().__init__(directory)
        self._name = name
        self._verb, self._code, self._text = verb, code, text

    def connect(self, name: str) -> sqlite3.Connection:
        if name != self._name:
            return super().connect(name)
        connection = sqlite3.connect(
            self.directory / name, isolation_level=None, check_same_thread=False, factory=Failing
        )
        connection.verb, connection.code, connection.text = self._verb, self._code, self._text
        return connection


@pytest.fixture
async def directory(tmp_path: Path) -> Path:
    storage = file_storage(tmp_path / "data")
    await storage.open()
    await storage.create_topics([TOPIC])
    await storage.commit([append(PARTITION, b"kept")])
    await storage.close()
    return tmp_path / "data"


async def opens(directory: Path) -> bool:
    storage = file_storage(directory)
    await storage.open()
    found = await read_all(storage, PARTITION)
    await storage.close()
    return found == {0: b"kept"}


@pytest.mark.parametrize("name", [CATALOG, BACKUP])
@pytest.mark.parametrize("verb", ["PRAGMA journal_mode", "SELECT * FROM"])
@pytest.mark.parametrize(
    ("code", "text", "advice"),
    [
        (sqlite3.SQLITE_BUSY, "database is locked", "stop that program"),
        (sqlite3.SQLITE_READONLY, "attempt to write a readonly database", "mounted read-only"),
        (sqlite3.SQLITE_CANTOPEN, "unable to open database file", "may read and write"),
        (sqlite3.SQLITE_PERM, "access permission denied", "read and write it"),
        (sqlite3.SQLITE_IOERR_READ, "disk I/O error", "check the disk"),
        (sqlite3.SQLITE_NOMEM, "out of memory", "free some"),
        (sqlite3.SQLITE_FULL, "database or disk is full", "larger disk"),
    ],
)
async def test_an_error_says_what_to_do_and_harms_nothing(
    directory: Path, name: str, verb: str, code: int, text: str, advice: str
) -> None:
    data_directory = FailingDirectory(directory, name, verb, code, text)
    with pytest.raises(Unavailable) as raised:
        await FileStorage(directory, clock=ManualClock(), data_directory=data_directory).open()
    sentence, _ = explain(raised.value)
    assert str(directory / name) in sentence and text in sentence and advice in sentence
    assert isinstance(raised.value, StorageFull) == (code == sqlite3.SQLITE_FULL)
    assert await opens(directory)
    assert not (directory / "catalog.damaged").exists()


async def test_an_error_while_the_backup_is_copied_is_explained(directory: Path) -> None:
    (directory / CATALOG).write_bytes(b"no database at all " * 100)

    class Unwritable(sqlite3.Connection):
        def backup(self, target: sqlite3.Connection, **options: object) -> None:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE
            raise error

    class DataDirectory(OsDataDirectory):
        def connect(self, name: str) -> sqlite3.Connection:
            path = self.directory / name
            return sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=Unwritable)

    with pytest.raises(Unavailable, match="check the disk"):
        await FileStorage(directory, clock=ManualClock(), data_directory=DataDirectory(directory)).open()


async def test_another_program_that_holds_the_catalog_is_named_as_the_reason(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect

    def impatient(*args: object, **options: object) -> sqlite3.Connection:
        return connect(*args, timeout=0.05, **options)  # type: ignore[call-overload, no-any-return]

    with closing(sqlite3.connect(directory / CATALOG)) as other:
        other.execute("BEGIN EXCLUSIVE")
        monkeypatch.setattr(sqlite3, "connect", impatient)
        with pytest.raises(Unavailable, match="locked by another program"):
            await file_storage(directory).open()
    assert await opens(directory)


@pytest.mark.parametrize("more", ["", "CREATE TABLE more (x)"], ids=["same tables", "other tables"])
async def test_a_newer_format_is_no_damage(directory: Path, more: str) -> None:
    newer = str(int(FORMAT) + 1)
    for name in (CATALOG, BACKUP):
        with closing(sqlite3.connect(directory / name)) as connection, connection:
            connection.execute(more)
            put_meta(connection, {"format": newer})
    with pytest.raises(Unavailable, match=f"has format {newer}.* start the version that wrote it") as raised:
        await file_storage(directory).open()
    assert not isinstance(raised.value, DataDamaged)
    assert not (directory / "catalog.damaged").exists()


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _text(path: Path) -> None:
    path.write_text("no database at all " * 100)


@pytest.mark.parametrize("name", [CATALOG, BACKUP])
async def test_what_is_no_file_is_named(directory: Path, name: str) -> None:
    _directory(directory / name)
    with pytest.raises(Unavailable, match=f"Is a directory: .*{name}.*; .* read and write"):
        await file_storage(directory).open()


async def test_without_catalog_and_backup_the_start_says_where_the_records_are(directory: Path) -> None:
    _text(directory / CATALOG)
    _text(directory / BACKUP)
    with pytest.raises(DataDamaged, match="restore either file from a copy"):
        await file_storage(directory).open()
    assert list((directory / "topics").glob("*/*.log"))
