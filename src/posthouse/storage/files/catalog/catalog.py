"""The catalog: topics, partitions, segments and valid file sizes. Rare writes, each a SQLite transaction.

    meta        format, cluster id, number of the last checkpointed journal frame, clean shutdown or not,
                whether the journal has a head, whether the broker still has to act on lost commits
    topics      id, name, partitions, overrides as JSON, whether its files are still to be removed
    partitions  log start and end at the checkpoint
    segments    size, highest timestamp, creation time and index size at the checkpoint; the valid generation
                of the file, the offset up to which it is compacted, and its next delete horizon
    state       values of the broker, by space and key

Every row carries a CRC32C of its values, because SQLite does not notice a flipped bit. A second file,
`catalog.backup.sqlite`, has all tables but `segments` and is written after the first; the creation of a topic
does not wait for it. A damaged catalog is restored from this backup; the rows of `segments` are rebuilt by
walking the segments.

Writes are synced before they return (`synchronous=FULL`). All calls block.
"""

import logging
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import TypeAlias

from posthouse.model.errors import DataDamaged, StorageFull
from posthouse.model.ids import PartitionId, TopicId
from posthouse.storage.files.catalog.errors import explained, is_damage
from posthouse.storage.files.catalog.rows import (
    FORMAT,
    SCHEMA,
    UNKNOWN_FRAME,
    CatalogSnapshot,
    Contents,
    SegmentRow,
    TopicRow,
    check_format,
    drop_orphans,
    drop_segments,
    load_contents,
    put_meta,
    put_partitions,
    put_segments,
    put_state,
    put_topics,
)
from posthouse.storage.files.system.data_directory import CATALOG, DataDirectory

log = logging.getLogger(__name__)

Write: TypeAlias = Callable[[sqlite3.Connection], None]

BACKUP = "catalog.backup.sqlite"
DAMAGED = "catalog.damaged"
RESERVE = "reserve"
RESERVE_BYTES = 1024 * 1024
_LOCKED_SECONDS = 5.0
"""How long a copy waits for the lock of a database; SQLite waits as long in every other call."""


class Catalog:
    def __init__(self, data_directory: DataDirectory) -> None:
        self._data_directory = data_directory
        self._path = data_directory.directory / CATALOG
        self._backup_path = data_directory.directory / BACKUP
        self._main: sqlite3.Connection | None = None
        self._backup: sqlite3.Connection | None = None
        self._version = 0
        self._missed: list[Write] = []
        """Changes that the backup does not have yet, in order."""
        self._is_behind = False
        """The last write to the backup failed: the next update copies the whole catalog."""

    def open(self, new_cluster_id: Callable[[], str]) -> Contents:
        """Open or create the catalog. A damaged catalog is set aside and restored from its backup."""
        try:
            return self._open(new_cluster_id)
        except sqlite3.Error as error:
            raise explained(self._path, error) from error

    def _open(self, new_cluster_id: Callable[[], str]) -> Contents:
        try:
            contents = self._open_main()
        except (sqlite3.DatabaseError, DataDamaged) as error:
            _raise_unless_damage(self._path, error)
            contents = self._restore(error)
        self._version = contents.version
        self._backup = self._open_backup()
        if not contents.cluster_id:
            contents.cluster_id = new_cluster_id()
            self._define(lambda c: put_meta(c, {"format": FORMAT, "cluster_id": contents.cluster_id}))
        elif contents.format != FORMAT:
            log.info("%s: upgrading from format %s to format %s", self._path, contents.format, FORMAT)
            self._define(lambda c: put_meta(c, {"format": FORMAT}))
        self._write(drop_orphans)
        self._keep_reserve()
        return contents

    def _open_main(self) -> Contents:
        self._main = _connect(self._data_directory, CATALOG)
        [[verdict]] = self._main.execute("PRAGMA quick_check(1)").fetchall()
        if verdict != "ok":
            raise DataDamaged(f"{self._path}: {verdict}")
        contents = load_contents(self._main)
        if self._backup_version() > contents.version:
            raise DataDamaged(f"{self._path} is older than its backup, so it has lost changes")
        if not contents.cluster_id and self._data_directory.has_topics():
            raise DataDamaged(f"{self._path} is empty, but there are topics")
        return contents

    def _backup_version(self) -> int:
        """The version of the backup. The backup is written second, so a backup that is ahead proves that the
        catalog has lost changes."""
        try:
            with closing(_connect(self._data_directory, BACKUP)) as backup:
                # State is not loaded here: it may have a million entries.
                return load_contents(backup, with_state=False).version
        except (sqlite3.DatabaseError, DataDamaged) as error:
            _raise_unless_damage(self._backup_path, error)
            return -1

    def _open_backup(self) -> sqlite3.Connection:
        """Open the backup. A damaged or outdated backup is rebuilt from the catalog."""
        assert self._main is not None
        version = self._backup_version()
        if version < 0:
            return self._made_again()
        backup = _connect(self._data_directory, BACKUP)
        if version < self._version:
            try:
                _copy(self._main, backup)
            except sqlite3.OperationalError as error:
                log.warning(
                    "%s: behind the catalog, copied with the next change: %s", self._backup_path, error
                )
                self._is_behind = True
        return backup

    def _made_again(self) -> sqlite3.Connection:
        assert self._main is not None
        log.error("%s is damaged; copying it from the catalog", self._backup_path)
        for suffix in ("", "-wal", "-shm"):
            self._data_directory.remove(f"{BACKUP}{suffix}")
        backup = _connect(self._data_directory, BACKUP)
        _copy(self._main, backup)
        return backup

    def _restore(self, damage: Exception) -> Contents:
        self._close_main()
        try:
            backup = _connect(self._data_directory, BACKUP)
            contents = load_contents(backup)
            if not contents.cluster_id:
                raise DataDamaged("the backup is empty")
        except (sqlite3.DatabaseError, DataDamaged) as error:
            _raise_unless_damage(self._backup_path, error)
            raise DataDamaged(
                f"{self._path} is damaged ({damage}) and so is {self._backup_path.name} ({error}). "
                "The records are still under topics/; restore either file from a copy to serve them."
            ) from error
        for suffix in ("-wal", "-shm"):
            self._data_directory.remove(f"{CATALOG}{suffix}")
        if self._data_directory.has(CATALOG):
            self._data_directory.replace(CATALOG, DAMAGED)
        log.error("%s is damaged (%s): kept as %s, restored from its backup", self._path, damage, DAMAGED)
        self._main = _connect(self._data_directory, CATALOG)
        with backup, self._main:
            _copy(backup, self._main)
            # The backup has no current rows of segments; rows of an earlier copy may name files that no
            # longer exist.
            self._main.execute("DELETE FROM segments")
            put_meta(self._main, {"frame": UNKNOWN_FRAME, "clean": "0"})
        backup.close()
        contents.frame = None
        contents.clean = False
        return contents

    def close(self) -> None:
        try:
            self.update_backup()
        finally:
            self._close_main()
            if self._backup is not None:
                self._backup.close()
                self._backup = None

    def _close_main(self) -> None:
        if self._main is not None:
            self._main.close()
            self._main = None

    def put_topics(
        self, topics: Sequence[TopicRow], state: Mapping[tuple[int, bytes], bytes | None] | None = None
    ) -> None:
        """Store topics. `update_backup` adds them to the backup later, so that clients do not wait for a
        second sync."""

        def write(connection: sqlite3.Connection) -> None:
            put_topics(connection, topics)
            put_state(connection, state or {})

        self._define_in_catalog(write, spends_reserve=all(topic.deleted for topic in topics))

    def forget_topics(self, topics: Sequence[TopicId]) -> None:
        """Remove the rows of topics whose files are deleted."""
        ids = [(topic,) for topic in topics]

        def write(connection: sqlite3.Connection) -> None:
            for table, column in (("topics", "id"), ("partitions", "topic"), ("segments", "topic")):
                connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", ids)

        self._define(write)

    def set_clean(self) -> None:
        """Record a clean shutdown: the next start needs nothing from the journal."""
        self._write(lambda connection: put_meta(connection, {"clean": "1"}))

    def set_started(self, *, has_head: bool) -> None:
        """Record that a broker has started: from now on recovery needs the journal, and its head if there is
        one."""
        values = {"clean": "0", "journal_head": str(int(has_head))}
        self._write(lambda connection: put_meta(connection, values))

    def set_lost_commits(self, has_lost: bool) -> None:
        """Record the loss until the broker has handled it: the next checkpoint removes the evidence."""
        self._define(lambda connection: put_meta(connection, {"lost_commits": str(int(has_lost))}))

    def checkpoint(self, snapshot: CatalogSnapshot) -> None:
        def write(connection: sqlite3.Connection) -> None:
            put_segments(connection, snapshot.segments, snapshot.first_segments)
            put_meta(connection, {"frame": str(snapshot.frame)})

        def write_shared(connection: sqlite3.Connection) -> None:
            put_partitions(connection, snapshot.partitions)
            put_state(connection, snapshot.state)

        self._define(write_shared, write, spends_reserve=False)
        self._keep_reserve()

    def replace_segments(self, partition: PartitionId, bases: Sequence[int], row: SegmentRow) -> None:
        """Atomically replace the segments with the given base offsets by one segment."""

        def write(connection: sqlite3.Connection) -> None:
            drop_segments(connection, partition, bases)
            put_segments(connection, [row], {})

        self._write(write)

    def _define(
        self, write: Write, in_catalog_only: Write = lambda _: None, *, spends_reserve: bool = True
    ) -> None:
        """Write a change to the catalog, then to the backup."""
        self._define_in_catalog(write, in_catalog_only, spends_reserve=spends_reserve)
        self.update_backup()

    def _define_in_catalog(
        self, write: Write, in_catalog_only: Write = lambda _: None, *, spends_reserve: bool = True
    ) -> None:
        """Write a change to the catalog; the next `update_backup` adds it to the backup."""
        self._version += 1
        version = str(self._version)

        def write_version(connection: sqlite3.Connection) -> None:
            write(connection)
            put_meta(connection, {"version": version})

        def write_catalog(connection: sqlite3.Connection) -> None:
            in_catalog_only(connection)
            write_version(connection)

        self._write(write_catalog, spends_reserve=spends_reserve)
        self._missed.append(write_version)

    def update_backup(self) -> None:
        """Write pending changes to the backup. A damaged or outdated backup is copied from the catalog.

        After a crash before this call the backup has a lower version, and the next start copies it from the
        catalog.
        """
        if self._main is None or not (self._missed or self._is_behind):
            return
        try:
            if self._backup is None:
                self._backup = self._made_again()
            elif self._is_behind:
                _copy(self._main, self._backup)
            else:
                with _transaction(self._backup):
                    for write in self._missed:
                        write(self._backup)
            self._missed.clear()
            self._is_behind = False
        except sqlite3.Error as error:
            log.warning("%s: cannot be written, retrying with the next change: %s", self._backup_path, error)
            self._missed.clear()  # copying the whole catalog replaces them
            self._is_behind = True
            if self._backup is not None and is_damage(error):
                self._backup.close()
                self._backup = None
                self.update_backup()

    def _write(self, write: Write, *, spends_reserve: bool = True) -> None:
        try:
            self._try(write)
        except StorageFull:
            # A deletion must work on a full disk, and it begins with a write to the catalog. Checkpoints and
            # new topics must not use the reserve: they can wait, and a later deletion needs it.
            if not spends_reserve or not self._data_directory.has(RESERVE):
                raise
            self._data_directory.remove(RESERVE)
            self._try(write)

    def _try(self, write: Write) -> None:
        assert self._main is not None
        try:
            with _transaction(self._main):
                write(self._main)
        except sqlite3.Error as error:
            raise explained(self._path, error) from error

    def _keep_reserve(self) -> None:
        if not self._data_directory.has(RESERVE):
            try:
                self._data_directory.write(RESERVE, b"\1" * RESERVE_BYTES)
            except OSError:
                self._data_directory.remove(RESERVE)


def _connect(data_directory: DataDirectory, name: str) -> sqlite3.Connection:
    connection = data_directory.connect(name)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    check_format(connection)
    if not _schema(connection):
        connection.executescript(SCHEMA)
    elif _schema(connection) != _expected_schema():
        raise DataDamaged("its tables differ from the schema of this version")
    return connection


def _copy(source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    """Replace the contents of a database. Raises OperationalError if another program holds the lock of either
    of them: SQLite's own call would wait without end."""
    deadline = time.monotonic() + _LOCKED_SECONDS

    def give_up(status: int, remaining: int, total: int) -> None:
        if status in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED) and time.monotonic() >= deadline:
            error = sqlite3.OperationalError(
                f"another program has kept the database locked for {_LOCKED_SECONDS:g} s"
            )
            error.sqlite_errorcode = status
            raise error

    source.backup(target, progress=give_up)


def _schema(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    return connection.execute(
        "SELECT name, sql FROM sqlite_schema WHERE sql NOT NULL ORDER BY name"
    ).fetchall()


@cache
def _expected_schema() -> list[tuple[str, str]]:
    """The schema to compare with: a flipped bit in a table's name would otherwise look like a table that was
    never created."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(SCHEMA)
        return _schema(connection)


def _raise_unless_damage(path: Path, error: sqlite3.Error | DataDamaged) -> None:
    if isinstance(error, sqlite3.Error) and not is_damage(error):
        raise explained(path, error) from error


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
