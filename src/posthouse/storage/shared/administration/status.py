"""The state of a shared storage, for operators: read from the database, whether a broker runs or not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg.rows import dict_row

from posthouse.storage.shared.database import DatabaseConnection, meaning
from posthouse.storage.shared.migrations import applied_schema, check_schema, newest_version

LIVE_SECONDS = 5.0
"""A broker that was not seen for longer is gone."""
_DUE_SECONDS = 600.0
"""Runs of this age are due for consolidation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatus:
    id: int
    name: str
    role: str
    """coordinator, member or gone."""
    addresses: dict[str, str]
    rack: str | None
    version: str
    seconds_since_seen: float | None
    """None after it has signed off."""
    is_draining: bool
    """An operator wants it to hold no scopes, also after a restart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseStatus:
    """Of the coordinator."""

    holder: str | None
    """The name of the broker, or its incarnation if it is not registered."""
    epoch: int
    seconds_left: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLease:
    holder: str
    """The name of the broker, or its incarnation if it is not registered: an import or export, or a start
    before the last one."""
    epoch: int
    seconds_left: float
    """0 when it is over: others may take the scopes."""
    scopes: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotStatus:
    number: int
    state: str
    runs: int
    bytes: int
    """In the database, with indexes and inline data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogsStatus:
    topics: int
    logs: int
    bytes: int
    """Of all batches, in runs and segments."""
    tail_runs: int
    tail_bytes: int
    """Of runs: not consolidated yet."""
    consolidation_lag_seconds: float
    """How long the oldest run has been due."""
    segments: int
    segment_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectsStatus:
    live: int
    live_bytes: int
    doomed: int
    doomed_bytes: int
    """Nothing in them is used: they are deleted after the grace period, unless they are held."""
    held: int
    """Doomed or not: clients, such as executors of Spark, read them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyStatus:
    """A standby of PostgreSQL. Only roles with pg_monitor see more than its existence."""

    name: str | None
    state: str | None
    sync_state: str | None
    replay_lag_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageStatus:
    version: int
    newest_version: int
    cluster_id: str | None
    """None until the first broker has started."""
    confirmed_losses: int
    loss: str | None
    """Why the database is known to have lost commits; brokers do not serve until an operator accepts it."""
    unfinished_import: str | None
    """The cluster id of the data directory that is being imported, or whose import was interrupted."""
    brokers: Sequence[BrokerStatus]
    lease: LeaseStatus
    leases: Sequence[BrokerLease]
    """Those that last or have scopes."""
    free_scopes: Sequence[str]
    slots: Sequence[SlotStatus]
    logs: LogsStatus
    objects: ObjectsStatus
    database_bytes: int
    synchronous_standby_names: str
    standbys: Sequence[StandbyStatus]


_BROKERS = """
SELECT b.id, b.name, b.addresses, b.rack, b.version,
       CASE WHEN b.seen_at <= '-infinity' OR b.seen_at < clock_timestamp() - make_interval(secs => %(live)s)
                THEN 'gone'
            WHEN b.incarnation = c.holder AND lease_seconds(c.holder) > 0 THEN 'coordinator'
            ELSE 'member' END AS role,
       CASE WHEN b.seen_at > '-infinity'
            THEN greatest(0, extract(epoch FROM clock_timestamp() - b.seen_at))::float8
            END AS seconds_since_seen,
       b.is_draining
FROM broker b, scope c WHERE c.name = 'coordinator' ORDER BY b.id
"""
_LEASE = """
SELECT coalesce(b.name, c.holder::text) AS holder, c.epoch, lease_seconds(c.holder) AS seconds_left
FROM scope c LEFT JOIN broker b ON b.incarnation = c.holder WHERE c.name = 'coordinator'
"""
_LEASES = """
SELECT * FROM (
    SELECT coalesce(b.name, l.holder::text) AS holder, l.epoch, lease_seconds(l.holder) AS seconds_left,
           ARRAY(SELECT s.name FROM scope s WHERE s.holder = l.holder ORDER BY s.name) AS scopes
    FROM lease l LEFT JOIN broker b ON b.incarnation = l.holder ORDER BY b.id, l.epoch
) AS found WHERE seconds_left > 0 OR scopes <> '{}'
"""
_FREE_SCOPES = """
SELECT name FROM scope WHERE holder IS NULL OR holder NOT IN (SELECT holder FROM lease) ORDER BY name
"""
_SLOTS = """
SELECT s.number, s.state, coalesce(r.runs, 0) AS runs,
       pg_total_relation_size('run_' || s.number)
           + pg_total_relation_size('inline_data_' || s.number) AS bytes
FROM slot s LEFT JOIN (SELECT slot, count(*) AS runs FROM run GROUP BY slot) r ON r.slot = s.number
ORDER BY s.number
"""
_LOGS = """
SELECT (SELECT count(*) FROM topic WHERE deleted_at IS NULL) AS topics,
       count(*) AS logs, coalesce(sum(l.bytes), 0)::bigint AS bytes,
       coalesce(sum(t.runs), 0)::bigint AS tail_runs, coalesce(sum(t.bytes), 0)::bigint AS tail_bytes,
       greatest(0, coalesce(
           extract(epoch FROM clock_timestamp())::float8 - min(t.oldest) / 1000.0 - %(due)s, 0))::float8
           AS consolidation_lag_seconds,
       (SELECT count(*) FROM segment) AS segments,
       (SELECT coalesce(sum(size), 0)::bigint FROM segment) AS segment_bytes
FROM log l
JOIN topic ON topic.id = l.topic AND topic.deleted_at IS NULL
LEFT JOIN (
    SELECT r.log, count(*) AS runs, sum(r.size) AS bytes, min(r.created_ms) AS oldest
    FROM run r JOIN log b ON b.id = r.log AND r.base >= b.segments_to GROUP BY r.log
) t ON t.log = l.id
"""
_OBJECTS = """
SELECT count(*) FILTER (WHERE doomed_at IS NULL) AS live,
       coalesce(sum(size) FILTER (WHERE doomed_at IS NULL), 0)::bigint AS live_bytes,
       count(*) FILTER (WHERE doomed_at IS NOT NULL) AS doomed,
       coalesce(sum(size) FILTER (WHERE doomed_at IS NOT NULL), 0)::bigint AS doomed_bytes,
       (SELECT count(DISTINCT held.id) FROM hold h, unnest(h.objects) AS held(id)
         WHERE h.until > now()) AS held
FROM object
"""
_DATABASE = """
SELECT pg_database_size(current_database()) AS database_bytes,
       current_setting('synchronous_standby_names') AS synchronous_standby_names,
       (SELECT id FROM cluster) AS cluster_id,
       (SELECT coalesce(max(confirmed_losses), 0) FROM cluster) AS confirmed_losses,
       (SELECT loss FROM cluster) AS loss,
       (SELECT source FROM local_import WHERE finished_at IS NULL) AS unfinished_import
"""
_STANDBYS = """
SELECT application_name AS name, state, sync_state,
       pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)::bigint AS replay_lag_bytes
FROM pg_stat_replication ORDER BY application_name
"""


async def read_status(connection: DatabaseConnection) -> StorageStatus:
    """Raises InvalidConfig if the tables are missing or old."""
    async with meaning("reading the state of the storage"):
        applied = await applied_schema(connection)
        check_schema(applied)
        [lease] = await _rows(connection, _LEASE)
        [logs] = await _rows(connection, _LOGS, due=_DUE_SECONDS)
        [objects] = await _rows(connection, _OBJECTS)
        [database] = await _rows(connection, _DATABASE)
        return StorageStatus(
            version=applied.version,
            newest_version=newest_version(),
            brokers=[BrokerStatus(**row) for row in await _rows(connection, _BROKERS, live=LIVE_SECONDS)],
            lease=LeaseStatus(**lease),
            leases=[BrokerLease(**row) for row in await _rows(connection, _LEASES)],
            free_scopes=[row["name"] for row in await _rows(connection, _FREE_SCOPES)],
            slots=[SlotStatus(**row) for row in await _rows(connection, _SLOTS)],
            logs=LogsStatus(**logs),
            objects=ObjectsStatus(**objects),
            standbys=[StandbyStatus(**row) for row in await _rows(connection, _STANDBYS)],
            **database,
        )


async def _rows(connection: DatabaseConnection, statement: str, **values: float) -> list[dict[str, Any]]:
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(statement.encode(), values)
        return await cursor.fetchall()
