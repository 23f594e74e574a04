"""The catalog: what exists, and how far every file counts. Rare writes, each a SQLite transaction.

    meta        format, cluster id, number of the last checkpointed journal frame, clean shutdown or not
    topics      id, name, partitions, overrides as JSON, whether its files are still to be removed
    partitions  log start and end at the checkpoint
    segments    size, highest timestamp, birth and index size at the checkpoint
    state       what the broker put, by space and key

Every row carries a CRC32C of its values, because SQLite does not notice a flipped bit. A second file,
`catalog.backup.sqlite`, repeats all but `segments` and is written after the first: if the catalog is damaged,
it comes from there and the rest is found again by walking the segments.

Writes are synced before they return (`synchronous=FULL`). All calls block.
"""

import json
import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from crc32c import crc32c

from posthouse.model.errors import DataDamaged, StorageFull, Unavailable
from posthouse.model.ids import PartitionId, TopicId

log = logging.getLogger(__name__)

Write: TypeAlias = Callable[[sqlite3.Connection], None]

FORMAT = "1"
RESERVE_BYTES = 1024 * 1024

_NO_DAMAGE = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
    }
)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS topics (
    id BLOB PRIMARY KEY, name TEXT NOT NULL, partitions INTEGER NOT NULL, overrides TEXT NOT NULL,
    deleted INTEGER NOT NULL, crc INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS partitions (
    topic BLOB, partition INTEGER, start INTEGER NOT NULL, end INTEGER NOT NULL, crc INTEGER NOT NULL,
    PRIMARY KEY (topic, partition)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS state (
    space INTEGER, key BLOB, value BLOB NOT NULL, crc INTEGER NOT NULL, PRIMARY KEY (space, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS segments (
    topic BLOB, partition INTEGER, base_offset INTEGER, size INTEGER NOT NULL,
    max_timestamp INTEGER NOT NULL, created_ms INTEGER NOT NULL, index_size INTEGER NOT NULL,
    crc INTEGER NOT NULL, PRIMARY KEY (topic, partition, base_offset)
) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    id: TopicId
    name: str
    partitions: int
    overrides: dict[str, str]
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class PartitionRow:
    partition: PartitionId
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SegmentRow:
    partition: PartitionId
    base_offset: int
    size: int
    max_timestamp: int
    created_ms: int
    index_size: int


@dataclass(slots=True, kw_only=True)
class Snapshot:
    """What a checkpoint writes: the partitions and segments that changed since the last one."""

    frame: int
    partitions: list[PartitionRow] = field(default_factory=list)
    segments: list[SegmentRow] = field(default_factory=list)
    first_segments: dict[PartitionId, int] = field(default_factory=dict)
    """The lowest base offset that each of the partitions still has; segments below it were let go."""
    state: dict[tuple[int, bytes], bytes | None] = field(default_factory=dict)
    """Values that were put or removed (None)."""


@dataclass(slots=True, kw_only=True)
class Contents:
    cluster_id: str
    frame: int | None
    """The last checkpointed frame; None if that is not known because the catalog was lost."""
    clean: bool
    topics: list[TopicRow]
    partitions: list[PartitionRow]
    segments: list[SegmentRow]
    state: dict[int, dict[bytes, bytes]]
    version: int
    """Counts the changes that both files have."""


class Catalog:
    def __init__(self, directory: Path) -> None:
        self._path = directory / "catalog.sqlite"
        self._backup_path = directory / "catalog.backup.sqlite"
        self._reserve = directory / "reserve"
        self._main: sqlite3.Connection | None = None
        self._backup: sqlite3.Connection | None = None
        self._version = 0

    def open(self, new_cluster_id: Callable[[], str]) -> Contents:
        """Open or create; a damaged catalog is put aside and restored from its backup."""
        try:
            contents = self._open_main()
        except (sqlite3.DatabaseError, DataDamaged) as error:
            _raise_unless_damage(error)
            contents = self._restore(error)
        self._version = contents.version
        self._backup = self._open_backup()
        if not contents.cluster_id:
            contents.cluster_id = new_cluster_id()
            self._define(lambda c: _put_meta(c, {"format": FORMAT, "cluster_id": contents.cluster_id}))
        self._write(_drop_orphans)
        self._keep_reserve()
        return contents

    def _open_main(self) -> Contents:
        self._main = _connect(self._path)
        [[verdict]] = self._main.execute("PRAGMA quick_check(1)").fetchall()
        if verdict != "ok":
            raise DataDamaged(f"{self._path}: {verdict}")
        contents = _load(self._main)
        if self._backup_version() > contents.version:
            raise DataDamaged(f"{self._path} lacks what its backup has")
        if not contents.cluster_id and self._has_topics():
            raise DataDamaged(f"{self._path} is empty, but there are topics")
        return contents

    def _has_topics(self) -> bool:
        topics = self._path.parent / "topics"
        return topics.is_dir() and any(topics.iterdir())

    def _backup_version(self) -> int:
        """The backup is written second: it is never ahead, unless the catalog has lost something."""
        try:
            with closing(_connect(self._backup_path)) as backup:
                return _load(backup).version
        except (sqlite3.DatabaseError, DataDamaged) as error:
            _raise_unless_damage(error)
            return -1

    def _open_backup(self) -> sqlite3.Connection:
        """One that is damaged or behind is made again from the catalog, which is whole."""
        assert self._main is not None
        version = self._backup_version()
        if version < 0:
            log.error("%s is damaged and is made again", self._backup_path)
            for suffix in ("", "-wal", "-shm"):
                Path(f"{self._backup_path}{suffix}").unlink(missing_ok=True)
        backup = _connect(self._backup_path)
        if version < self._version:
            self._main.backup(backup)
        return backup

    def _restore(self, damage: Exception) -> Contents:
        self._close_main()
        try:
            backup = _connect(self._backup_path)
            contents = _load(backup)
            if not contents.cluster_id:
                raise DataDamaged("the backup is empty")
        except (sqlite3.DatabaseError, DataDamaged) as error:
            _raise_unless_damage(error)
            raise DataDamaged(
                f"{self._path} is damaged ({damage}) and so is {self._backup_path.name} ({error}). "
                "The records are still under topics/; restore either file from a copy to serve them."
            ) from error
        aside = self._path.with_suffix(".damaged")
        for suffix in ("-wal", "-shm"):
            Path(f"{self._path}{suffix}").unlink(missing_ok=True)
        if self._path.exists():
            self._path.replace(aside)
        log.error("%s is damaged (%s): kept as %s, restored from its backup", self._path, damage, aside.name)
        self._main = _connect(self._path)
        with backup, self._main:
            backup.backup(self._main)
        backup.close()
        contents.frame = None
        contents.clean = False
        return contents

    def close(self) -> None:
        self._close_main()
        if self._backup is not None:
            self._backup.close()
            self._backup = None

    def _close_main(self) -> None:
        if self._main is not None:
            self._main.close()
            self._main = None

    def put_topics(self, topics: Sequence[TopicRow]) -> None:
        self._define(lambda connection: _put_topics(connection, topics))

    def forget_topics(self, topics: Sequence[TopicId]) -> None:
        """Their files are gone."""
        ids = [(topic,) for topic in topics]

        def write(connection: sqlite3.Connection) -> None:
            for table, column in (("topics", "id"), ("partitions", "topic"), ("segments", "topic")):
                connection.executemany(f"DELETE FROM {table} WHERE {column} = ?", ids)

        self._define(write)

    def set_clean(self, clean: bool) -> None:
        self._write(lambda connection: _put_meta(connection, {"clean": str(int(clean))}))

    def checkpoint(self, snapshot: Snapshot) -> None:
        def write(connection: sqlite3.Connection) -> None:
            _put_segments(connection, snapshot.segments, snapshot.first_segments)
            _put_meta(connection, {"frame": str(snapshot.frame)})

        def write_shared(connection: sqlite3.Connection) -> None:
            _put_partitions(connection, snapshot.partitions)
            _put_state(connection, snapshot.state)

        self._define(write_shared, write)
        self._keep_reserve()

    def _define(self, write: Write, in_catalog_only: Write = lambda _: None) -> None:
        """A change that both files have: the catalog decides, the backup follows."""
        self._version += 1

        def write_version(connection: sqlite3.Connection) -> None:
            write(connection)
            _put_meta(connection, {"version": str(self._version)})

        def write_catalog(connection: sqlite3.Connection) -> None:
            in_catalog_only(connection)
            write_version(connection)

        self._write(write_catalog)
        assert self._backup is not None
        try:
            with _transaction(self._backup):
                write_version(self._backup)
        except sqlite3.Error as error:
            log.warning("the catalog's backup could not be written: %s", error)

    def _write(self, write: Write) -> None:
        try:
            self._try(write)
        except StorageFull:
            # Deleting must work on a full disk, and it begins with a note in the catalog.
            if not self._reserve.exists():
                raise
            self._reserve.unlink()
            self._try(write)

    def _try(self, write: Write) -> None:
        assert self._main is not None
        try:
            with _transaction(self._main):
                write(self._main)
        except sqlite3.Error as error:
            if _primary_code(error) == sqlite3.SQLITE_FULL:
                raise StorageFull(f"no space left for the catalog: {error}") from error
            raise Unavailable(f"the catalog could not be written: {error}") from error

    def _keep_reserve(self) -> None:
        if not self._reserve.exists():
            try:
                self._reserve.write_bytes(b"\1" * RESERVE_BYTES)
            except OSError:
                self._reserve.unlink(missing_ok=True)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    if not _schema(connection):
        connection.executescript(_SCHEMA)
    elif _schema(connection) != _expected_schema():
        raise DataDamaged("its tables are not what they were")
    return connection


def _schema(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    return connection.execute(
        "SELECT name, sql FROM sqlite_schema WHERE sql NOT NULL ORDER BY name"
    ).fetchall()


def _expected_schema() -> list[tuple[str, str]]:
    """A flipped bit in a table's name would otherwise look like a table that was never made."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(_SCHEMA)
        return _schema(connection)


def _primary_code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def _raise_unless_damage(error: sqlite3.Error | DataDamaged) -> None:
    """A disk that is full or a file that may not be opened says nothing about what the file holds."""
    if isinstance(error, sqlite3.Error) and _primary_code(error) in _NO_DAMAGE:
        if _primary_code(error) == sqlite3.SQLITE_FULL:
            raise StorageFull(f"no space left to open the catalog: {error}") from error
        raise Unavailable(f"the catalog cannot be opened: {error}") from error


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


def _crc(*values: object) -> int:
    return crc32c(repr(values).encode())


def _drop_orphans(connection: sqlite3.Connection) -> None:
    """A checkpoint may have been under way while its topic was deleted."""
    for table in ("partitions", "segments"):
        connection.execute(f"DELETE FROM {table} WHERE topic NOT IN (SELECT id FROM topics)")


def _state_crc(space: int, key: bytes, value: bytes) -> int:
    """There may be a million of these; this is ten times as fast as `_crc`."""
    return crc32c(value, crc32c(key, space))


def _put_meta(connection: sqlite3.Connection, values: dict[str, str]) -> None:
    rows = [(key, value, _crc(key, value)) for key, value in values.items()]
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?, ?)", rows)


def _put_topics(connection: sqlite3.Connection, topics: Sequence[TopicRow]) -> None:
    rows = []
    for topic in topics:
        overrides = json.dumps(topic.overrides, sort_keys=True)
        values = (topic.id, topic.name, topic.partitions, overrides, int(topic.deleted))
        rows.append((*values, _crc(*values)))
    connection.executemany("INSERT OR REPLACE INTO topics VALUES (?, ?, ?, ?, ?, ?)", rows)


def _put_partitions(connection: sqlite3.Connection, partitions: Sequence[PartitionRow]) -> None:
    rows = []
    for row in partitions:
        values = (row.partition.topic, row.partition.index, row.start, row.end)
        rows.append((*values, _crc(*values)))
    connection.executemany("INSERT OR REPLACE INTO partitions VALUES (?, ?, ?, ?, ?)", rows)


def _put_segments(
    connection: sqlite3.Connection, segments: Sequence[SegmentRow], first: dict[PartitionId, int]
) -> None:
    rows = []
    for row in segments:
        id = row.partition
        values = (
            id.topic,
            id.index,
            row.base_offset,
            row.size,
            row.max_timestamp,
            row.created_ms,
            row.index_size,
        )
        rows.append((*values, _crc(*values)))
    connection.executemany(
        "DELETE FROM segments WHERE topic = ? AND partition = ? AND base_offset < ?",
        [(id.topic, id.index, base_offset) for id, base_offset in first.items()],
    )
    connection.executemany("INSERT OR REPLACE INTO segments VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)


def _put_state(connection: sqlite3.Connection, state: dict[tuple[int, bytes], bytes | None]) -> None:
    removed = [name for name, value in state.items() if value is None]
    kept = [
        (space, key, value, _state_crc(space, key, value))
        for (space, key), value in state.items()
        if value is not None
    ]
    connection.executemany("DELETE FROM state WHERE space = ? AND key = ?", removed)
    connection.executemany("INSERT OR REPLACE INTO state VALUES (?, ?, ?, ?)", kept)


def _load(connection: sqlite3.Connection) -> Contents:
    def rows(table: str, order: str) -> Iterator[tuple[object, ...]]:
        for *values, crc in connection.execute(f"SELECT * FROM {table} ORDER BY {order}"):
            if _crc(*values) != crc:
                raise DataDamaged(f"a row of the catalog's {table} has changed by itself")
            yield tuple(values)

    meta = {str(key): str(value) for key, value in rows("meta", "key")}
    if meta and meta.get("format") != FORMAT:
        raise Unavailable(
            f"this data directory has format {meta.get('format')}; this version of Posthouse reads {FORMAT}"
        )
    return Contents(
        cluster_id=meta.get("cluster_id", ""),
        frame=int(meta.get("frame", "0")),
        clean=meta.get("clean") == "1",
        topics=[_topic_row(values) for values in rows("topics", "id")],
        partitions=[_partition_row(values) for values in rows("partitions", "topic, partition")],
        segments=[_segment_row(values) for values in rows("segments", "topic, partition, base_offset")],
        state=_load_state(connection),
        version=int(meta.get("version", "0")),
    )


def _load_state(connection: sqlite3.Connection) -> dict[int, dict[bytes, bytes]]:
    state: dict[int, dict[bytes, bytes]] = {}
    for space, key, value, crc in connection.execute("SELECT * FROM state"):
        if _state_crc(space, key, value) != crc:
            raise DataDamaged("a row of the catalog's state has changed by itself")
        state.setdefault(space, {})[key] = value
    return state


def _topic_row(values: tuple[object, ...]) -> TopicRow:
    id, name, partitions, overrides, deleted = values
    assert isinstance(id, bytes) and isinstance(name, str) and isinstance(partitions, int)
    return TopicRow(
        id=TopicId(id),
        name=name,
        partitions=partitions,
        overrides=json.loads(str(overrides)),
        deleted=bool(deleted),
    )


def _partition_row(values: tuple[object, ...]) -> PartitionRow:
    topic, partition, start, end = values
    assert isinstance(topic, bytes) and isinstance(partition, int)
    assert isinstance(start, int) and isinstance(end, int)
    return PartitionRow(PartitionId(TopicId(topic), partition), start, end)


def _segment_row(values: tuple[object, ...]) -> SegmentRow:
    topic, partition, *numbers = values
    assert isinstance(topic, bytes) and isinstance(partition, int)
    assert all(isinstance(number, int) for number in numbers)
    return SegmentRow(PartitionId(TopicId(topic), partition), *numbers)  # type: ignore[arg-type]
