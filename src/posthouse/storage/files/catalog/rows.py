"""The catalog's rows: SQLite schema, checksums and their meaning.

Every row ends with a CRC32C of its values: of their text in small tables, of their bytes in tables that may
have millions of rows.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct
from struct import error as StructError

from crc32c import crc32c

from posthouse.model.errors import DataDamaged, Unavailable
from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.topic_config import TopicConfig
from posthouse.model.topics import Topic

FORMAT = "2"
READABLE = frozenset({"1", FORMAT})
"""Segments of format 1 have no header. Opening a catalog of format 1 upgrades it to format 2."""
HAS_HEADER = 1 << 31
"""Added to the generation of a segment whose file begins with a header."""
UNKNOWN_FRAME = "unknown"
"""Replaces the checkpointed frame number in a restored catalog until recovery has walked its segments."""

_PARTITION = Struct(">16sIqq")
_SEGMENT = Struct(">16sIqqqqqIqq")

SCHEMA = """
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
    generation INTEGER NOT NULL, clean_to INTEGER NOT NULL, horizon INTEGER NOT NULL,
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

    @classmethod
    def of(cls, topic: Topic, *, deleted: bool = False) -> "TopicRow":
        return cls(
            id=topic.id,
            name=topic.name,
            partitions=topic.partitions,
            overrides=dict(topic.overrides),
            deleted=deleted,
        )

    def topic(self, defaults: TopicConfig) -> Topic:
        return Topic(
            id=self.id,
            name=self.name,
            partitions=self.partitions,
            overrides=self.overrides,
            config=defaults.with_stored(self.overrides, self.name),
        )


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
    generation: int
    clean_to: int
    horizon: int
    has_header: bool


@dataclass(slots=True, kw_only=True)
class CatalogSnapshot:
    """What a checkpoint writes: the partitions and segments that changed since the last one."""

    frame: int
    partitions: list[PartitionRow] = field(default_factory=list)
    segments: list[SegmentRow] = field(default_factory=list)
    first_segments: dict[PartitionId, int] = field(default_factory=dict)
    """The lowest base offset that each partition still has; segments below it were removed."""
    state: dict[tuple[int, bytes], bytes | None] = field(default_factory=dict)
    """Values that were put or removed (None)."""


@dataclass(slots=True, kw_only=True)
class Contents:
    cluster_id: str
    format: str
    frame: int | None
    """The last checkpointed frame; None after the catalog was lost."""
    clean: bool
    was_started: bool
    """A broker has started to write a journal in this data directory."""
    has_head: bool
    """The journal should have a head. Older versions wrote none."""
    has_lost_commits: bool
    """An earlier start found lost commits, and the broker has not handled the loss yet."""
    topics: list[TopicRow]
    partitions: list[PartitionRow]
    segments: list[SegmentRow]
    state: dict[int, dict[bytes, bytes]]
    version: int
    """Number of changes that both the catalog and its backup have."""


def _crc(*values: object) -> int:
    return crc32c(repr(values).encode())


def drop_orphans(connection: sqlite3.Connection) -> None:
    """Remove rows of deleted topics: a checkpoint may have been running while its topic was deleted."""
    for table in ("partitions", "segments"):
        connection.execute(f"DELETE FROM {table} WHERE topic NOT IN (SELECT id FROM topics)")


def _partition_crc(*values: bytes | int) -> int:
    return crc32c(_PARTITION.pack(*values))


def _segment_crc(*values: bytes | int) -> int:
    return crc32c(_SEGMENT.pack(*values))


def _state_crc(space: int, key: bytes, value: bytes) -> int:
    return crc32c(value, crc32c(key, space))


_CHECKSUMS: dict[str, Callable[..., int]] = {
    "meta": _crc,
    "topics": _crc,
    "partitions": _partition_crc,
    "segments": _segment_crc,
    "state": _state_crc,
}


def put_meta(connection: sqlite3.Connection, values: dict[str, str]) -> None:
    rows = [(key, value, _crc(key, value)) for key, value in values.items()]
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?, ?)", rows)


def put_topics(connection: sqlite3.Connection, topics: Sequence[TopicRow]) -> None:
    rows = []
    for topic in topics:
        overrides = json.dumps(topic.overrides, sort_keys=True)
        values = (topic.id, topic.name, topic.partitions, overrides, int(topic.deleted))
        rows.append((*values, _crc(*values)))
    connection.executemany("INSERT OR REPLACE INTO topics VALUES (?, ?, ?, ?, ?, ?)", rows)


def put_partitions(connection: sqlite3.Connection, partitions: Sequence[PartitionRow]) -> None:
    rows = []
    for row in partitions:
        values = (row.partition.topic, row.partition.index, row.start, row.end)
        rows.append((*values, _partition_crc(*values)))
    connection.executemany("INSERT OR REPLACE INTO partitions VALUES (?, ?, ?, ?, ?)", rows)


def put_segments(
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
            row.generation | (HAS_HEADER if row.has_header else 0),
            row.clean_to,
            row.horizon,
        )
        rows.append((*values, _segment_crc(*values)))
    connection.executemany(
        "DELETE FROM segments WHERE topic = ? AND partition = ? AND base_offset < ?",
        [(id.topic, id.index, base_offset) for id, base_offset in first.items()],
    )
    connection.executemany("INSERT OR REPLACE INTO segments VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)


def drop_segments(connection: sqlite3.Connection, partition: PartitionId, bases: Sequence[int]) -> None:
    connection.executemany(
        "DELETE FROM segments WHERE topic = ? AND partition = ? AND base_offset = ?",
        [(partition.topic, partition.index, base) for base in bases],
    )


def put_state(connection: sqlite3.Connection, state: Mapping[tuple[int, bytes], bytes | None]) -> None:
    removed = [name for name, value in state.items() if value is None]
    kept = [
        (space, key, value, _state_crc(space, key, value))
        for (space, key), value in state.items()
        if value is not None
    ]
    connection.executemany("DELETE FROM state WHERE space = ? AND key = ?", removed)
    connection.executemany("INSERT OR REPLACE INTO state VALUES (?, ?, ?, ?)", kept)


TABLES = tuple(_CHECKSUMS)


def is_sound(table: str, values: Sequence[object], crc: object) -> bool:
    """Whether the row's checksum fits its values."""
    try:
        return _CHECKSUMS[table](*values) == crc
    except (StructError, TypeError):
        return False  # a damaged value of a type that no row can have


def check_format(connection: sqlite3.Connection) -> None:
    """Raises Unavailable if a newer version wrote the catalog: unknown tables are not damage."""
    try:
        found = connection.execute("SELECT key, value, crc FROM meta WHERE key = 'format'").fetchall()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
            raise
        return  # no such table: a new file, or not a catalog
    for key, value, crc in found:
        if is_sound("meta", (key, value), crc) and value not in READABLE:
            raise Unavailable(
                f"this data directory has format {value}, and this version of Posthouse reads up to "
                f"{FORMAT}; start the version that wrote it, or a later one"
            )


def load_contents(connection: sqlite3.Connection, *, with_state: bool = True) -> Contents:
    def rows(table: str, order: str) -> Iterator[tuple[object, ...]]:
        for *values, crc in connection.execute(f"SELECT * FROM {table} ORDER BY {order}"):
            if not is_sound(table, values, crc):
                raise DataDamaged(f"a row of the catalog's {table} does not match its checksum")
            yield tuple(values)

    check_format(connection)
    meta = {str(key): str(value) for key, value in rows("meta", "key")}
    return Contents(
        cluster_id=meta.get("cluster_id", ""),
        format=meta.get("format", FORMAT),
        frame=None if meta.get("frame") == UNKNOWN_FRAME else int(meta.get("frame", "0")),
        clean=meta.get("clean") == "1",
        was_started="clean" in meta,
        has_head=meta.get("journal_head") == "1",
        has_lost_commits=meta.get("lost_commits") == "1",
        topics=[_topic_row(values) for values in rows("topics", "id")],
        partitions=[_partition_row(values) for values in rows("partitions", "topic, partition")],
        segments=[_segment_row(values) for values in rows("segments", "topic, partition, base_offset")],
        state=_load_state(connection) if with_state else {},
        version=int(meta.get("version", "0")),
    )


def _load_state(connection: sqlite3.Connection) -> dict[int, dict[bytes, bytes]]:
    """Load all rows of state. There may be a million: the loop makes no call per row except for checksums."""
    state: dict[int, dict[bytes, bytes]] = {}
    latest, values = None, {}
    try:
        for space, key, value, crc in connection.execute("SELECT * FROM state"):
            if space != latest:
                latest, values = space, state.setdefault(space, {})
            if crc32c(value, crc32c(key, space)) != crc:
                raise DataDamaged("a row of the catalog's state does not match its checksum")
            values[key] = value
    except TypeError as error:
        raise DataDamaged("a row of the catalog's state does not match its checksum") from error
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
    *start, generation, clean_to, horizon = (number for number in numbers if isinstance(number, int))
    base_offset, size, max_timestamp, created_ms, index_size = start
    return SegmentRow(
        PartitionId(TopicId(topic), partition),
        base_offset,
        size,
        max_timestamp,
        created_ms,
        index_size,
        generation & ~HAS_HEADER,
        clean_to,
        horizon,
        bool(generation & HAS_HEADER),
    )
