"""The statements that a running broker sends, and what each of them does to the tables.

Statements are known by their text. One that is not known is a fault of the simulation, and ends the seed.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any
from uuid import UUID

from posthouse.model.scopes import shard_of
from posthouse.storage.shared import state_reader
from posthouse.storage.shared.commits import commit_call
from posthouse.storage.shared.logs import definitions, follower, loading, topics_in_doubt
from posthouse.storage.shared.reads import pieces, reads
from posthouse.storage.spaces import COORDINATORS, Space
from tests.simulation.cluster.commit import (
    CommitGroupCall,
    numbers,
    open_commit_path,
    reserve_producer_ids,
    resolve_commit,
)
from tests.simulation.cluster.tables import LogRow, Tables, TopicRow, newest_version_once

Row = tuple[Any, ...]
Statement = Callable[[Tables, Any], list[Row]]

DRAIN = "SELECT posthouse.drain_broker(%s, %s)"
WANT = "SELECT posthouse.want_scope(%s, %s)"
SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_SLOT = 0
_SETTINGS = {
    "server_version_num": "150000",
    "synchronous_standby_names": "standby",
    "fsync": "on",
    "full_page_writes": "on",
}


def _text(statement: str) -> str:
    return " ".join(statement.split())


def statement_of(text: str | bytes) -> str:
    """The key under which a statement is known."""
    return _text(text.decode() if isinstance(text, bytes) else text)


def needs_last_change(statement: str, values: Any) -> bool:
    """Whether it locks the number of the last change, until its transaction ends."""
    if statement == _COMMIT_GROUP:
        return bool(values[-1] != "{}")
    return statement in (_text(definitions._NOTE_CHANGE), _text(topics_in_doubt.LOCK_CHANGES))


def _one(value: Any) -> list[Row]:
    return [(value,)]


def _function(call: Callable[..., Any]) -> Statement:
    """A function of the tables: one row with what it returns."""
    return lambda tables, values: _one(call(tables, *values))


def _nothing(tables: Tables, values: Any) -> list[Row]:
    """A setting of the session."""
    return [(None,)]


# Of the cluster


def _make_cluster(tables: Tables, values: Sequence[Any]) -> list[Row]:
    if tables.cluster is None:
        tables.cluster = (values[0], bytes(values[1]))
    return []


def _identity(tables: Tables, values: Any) -> list[Row]:
    assert tables.cluster is not None
    return [tables.cluster]


def _incarnation(tables: Tables, values: Sequence[Any]) -> list[Row]:
    found = tables.brokers.get(values[0])
    return [] if found is None else [(found.incarnation,)]


def _loaded_cluster(tables: Tables, values: Any) -> list[Row]:
    assert tables.cluster is not None
    return [(tables.cluster[0], 0, len(tables.changes), False)]


# Topics and logs


def _topic_rows(tables: Tables, chosen: Sequence[UUID] | None) -> list[Row]:
    ids = tables.topics if chosen is None else chosen
    return [
        (id, topic.name, topic.partitions, topic.overrides, topic.namespaces)
        for id in ids
        if (topic := tables.topics.get(id)) is not None and not topic.is_deleted
    ]


def _log_row(log: LogRow) -> Row:
    return (log.id, log.topic, log.partition, log.start, log.next, log.bytes, log.first_open)


def _create_topics(tables: Tables, values: Sequence[Any]) -> list[Row]:
    for id, name, partitions, overrides, namespaces in zip(*values, strict=True):
        _, announced = tables.state.get((int(Space.SOURCES), name.encode()), (None, None))
        if namespaces is None and announced is not None:
            namespaces = announced[0]
        tables.topics.setdefault(id, TopicRow(name, partitions, dict(overrides.obj), namespaces))
    return []


def _change_topic(tables: Tables, values: Sequence[Any]) -> list[Row]:
    partitions, overrides, id = values
    topic = tables.topics.get(id)
    if topic is None or topic.is_deleted:
        return []
    topic.partitions, topic.overrides = partitions, dict(overrides.obj)
    return _one(id)


def _scopeless(tables: Tables, values: Sequence[Any]) -> list[Row]:
    return [
        (topic.name,)
        for topic in tables.topics.values()
        if topic.name in values[0] and topic.namespaces is None and not topic.is_deleted
    ]


def _give_topics(tables: Tables, values: Sequence[Any]) -> list[Row]:
    namespaces, ids = values
    for id in ids:
        topic = tables.topics.get(id)
        if topic is not None and topic.namespaces is None:
            topic.namespaces = namespaces
    return []


def _give_logs(tables: Tables, values: Sequence[Any]) -> list[Row]:
    namespaces, ids = values
    for log in tables.logs_of(ids):
        if log.namespaces is None:
            log.namespaces = namespaces
    return []


def _put_logs(tables: Tables, values: Sequence[Any]) -> list[Row]:
    for id in values[0]:
        topic = tables.topics[id]
        for partition in range(topic.partitions):
            number = tables.log_id(id, partition)
            if number not in tables.logs:
                tables.logs[number] = LogRow(number, id, partition, topic.namespaces)
    return []


def _namesakes(tables: Tables, values: Sequence[Any]) -> list[Row]:
    names, ids = values
    return [
        (topic.name,)
        for id, topic in tables.topics.items()
        if topic.name in names and id not in ids and not topic.is_deleted
    ]


def _delete_topics(tables: Tables, values: Sequence[Any]) -> list[Row]:
    for id in values[0]:
        if id in tables.topics:
            tables.topics[id].is_deleted = True
    return []


def _delete_logs(tables: Tables, values: Sequence[Any]) -> list[Row]:
    for log in tables.logs_of(values[0]):
        log.is_deleted = True
    return []


def _read_changes(tables: Tables, values: Sequence[Any]) -> list[Row]:
    (since,) = values
    topics: dict[UUID, None] = {}
    spaces: dict[int, None] = {}
    for changed_topics, changed_spaces in tables.changes[max(since, 0) :]:
        topics |= dict.fromkeys(changed_topics)
        spaces |= dict.fromkeys(changed_spaces)
    last = len(tables.changes)
    return [(last, 0 <= since <= last, list(topics), list(spaces))]


def _changed_logs(tables: Tables, values: Sequence[Any]) -> list[Row]:
    found = []
    for id, start, end in zip(*map(numbers, values), strict=True):
        log = tables.logs.get(id)
        if log is not None and (log.next != end or log.start != start):
            found.append((id, log.start, log.next, log.bytes, log.first_open))
    return found


def _producer_rows(tables: Tables, logs: Sequence[int] | None) -> list[Row]:
    return [
        (log, id, row.epoch, list(row.batches), row.last_time, row.open_since)
        for (log, id), row in tables.producers.items()
        if logs is None or log in logs
    ]


def _aborted_rows(tables: Tables, values: Any) -> list[Row]:
    return [(log, row.last, row.first, row.producer) for log, rows in tables.aborted.items() for row in rows]


# Records


def _pieces(tables: Tables, wanted: Mapping[str, int]) -> list[Row]:
    log = tables.logs.get(wanted["log"])
    if log is None or log.is_deleted:
        return []
    offset = max(wanted["offset"], log.start)
    found = [run for run in tables.runs.get(log.id, ()) if run.last >= offset][: wanted["rows"]]
    if not found:
        return [(log.start, log.next, *[None] * 13)]
    rows = []
    for run in found:
        stored = None if run.object is None else tables.objects[run.object]
        rows.append(
            (
                log.start,
                log.next,
                _SLOT,
                run.base,
                run.last,
                run.inline,
                run.object,
                None if stored is None else stored.key,
                None if stored is None else stored.size,
                run.pos,
                run.size,
                run.max_time,
                run.created_ms,
                run.refs,
                0,
            )
        )
    return rows


def _pieces_and_aborted(tables: Tables, wanted: Mapping[str, int]) -> list[Row]:
    rows = _pieces(tables, wanted)
    size, reached = 0, -1
    for row in rows:
        if row[3] is not None and size < wanted["bytes"]:
            size += row[10]
            reached = row[4]
    aborted = [
        (None, None, None, each.first, each.last, each.producer, *[None] * 8, -1)
        for each in tables.aborted.get(wanted["log"], ())
        if each.first <= reached and each.last >= wanted["offset"]
    ]
    return rows + aborted


def _aborted_between(tables: Tables, wanted: Mapping[str, int]) -> list[Row]:
    found = [
        (0, each.producer, each.first, each.last)
        for each in tables.aborted.get(wanted["log"], ())
        if each.first <= wanted["last"] and each.last >= wanted["first"]
    ]
    return sorted(found, key=lambda row: row[3]) or [(0, None, None, None)]


def _read_inline(tables: Tables, values: Sequence[int]) -> list[Row]:
    start, size, _, id = values
    return [(tables.inline[id - 1][start - 1 : start - 1 + size],)]


def _read_inline_runs(tables: Tables, values: Sequence[Sequence[int]]) -> list[Row]:
    return [(tables.inline[id - 1][pos : pos + size],) for _, id, pos, size in zip(*values, strict=True)]


def _later(tables: Tables, wanted: Mapping[str, int]) -> list[Row]:
    runs = tables.runs.get(wanted["log"], ())
    return [(run.base,) for run in runs if run.last >= wanted["from"] and run.max_time >= wanted["time"]][:1]


def _latest(tables: Tables, wanted: Mapping[str, int]) -> list[Row]:
    runs = tables.runs.get(wanted["log"], ())
    return _one(max((run.max_time for run in runs if run.last >= wanted["from"]), default=None))


# State


def _put_state(tables: Tables, values: Sequence[Any]) -> list[Row]:
    space, owner, key, value = values
    tables.state[space, bytes(key)] = (bytes(owner), bytes(value))
    return []


def _state_rows(tables: Tables, spaces: Collection[int] | None) -> list[Row]:
    return [
        (space, key, value)
        for (space, key), (_, value) in tables.state.items()
        if spaces is None or space in spaces
    ]


def _of_shard(tables: Tables, values: Sequence[int]) -> list[Row]:
    wanted, shard = values
    return [
        (key, value)
        for (space, key), (owner, value) in tables.state.items()
        if space == wanted and shard_of(owner) == shard
    ]


def _of_space(tables: Tables, values: Sequence[int]) -> list[Row]:
    (wanted,) = values
    return [(key, value) for (space, key), (_, value) in tables.state.items() if space == wanted]


def _of_namespaces(tables: Tables, values: Sequence[Any]) -> list[Row]:
    (shards,) = values
    return [
        (space, key, value)
        for (space, key), (owner, value) in tables.state.items()
        if space in (Space.EXCHANGES, Space.BINDINGS, Space.QUEUES) and shard_of(owner) in shards
    ]


def _of_owners(tables: Tables, values: Sequence[Any]) -> list[Row]:
    wanted, _, hashes = values
    return [
        (key, value)
        for (space, key), (owner, value) in tables.state.items()
        if space == wanted and sha256(owner).digest() in hashes
    ]


def _pending_group(key: bytes) -> bytes:
    return b"" if len(key) < 22 else key[22 + int.from_bytes(key[:2], "big") :]


def _pending(tables: Tables, is_wanted: Callable[[bytes], bool]) -> list[Row]:
    return [(key, None) for space, key in tables.state if space == 3 and is_wanted(_pending_group(key))]


def _offsets_of_shard(tables: Tables, values: Sequence[int]) -> list[Row]:
    shard = values[0]
    return _of_shard(tables, (1, shard)) + _pending(tables, lambda group: shard_of(group) == shard)


def _offsets_of_groups(tables: Tables, values: Sequence[Any]) -> list[Row]:
    shards, hashes, _, groups = values
    return _of_owners(tables, (1, shards, hashes)) + _pending(tables, lambda group: group in groups)


def _keys_of_topics(tables: Tables, values: Sequence[Any]) -> list[Row]:
    topics, wanted = values
    return [(key,) for space, key in tables.state if space == wanted and key[:16] in topics]


_COMMIT_GROUP = _text(commit_call._CALL)

_BY_TEXT: dict[str, Statement] = {
    # Of a session
    "SELECT set_config('statement_timeout', %s, false)": _nothing,
    "SET synchronous_commit = off": _nothing,
    "SET LOCAL statement_timeout = 0": _nothing,
    SNAPSHOT: _nothing,
    "SELECT current_setting(%s)": lambda tables, values: _one(_SETTINGS[values[0]]),
    "SELECT to_regclass('posthouse.schema_version') IS NOT NULL": lambda tables, values: _one(True),
    "SELECT version, compatible_from FROM posthouse.schema_version ORDER BY version DESC LIMIT 1": (
        lambda tables, values: [(newest_version_once(), newest_version_once())]
    ),
    # The cluster
    "INSERT INTO posthouse.cluster (id, secret) VALUES (%s, %s) ON CONFLICT DO NOTHING": _make_cluster,
    "SELECT id, secret FROM posthouse.cluster": _identity,
    "SELECT posthouse.register_broker(%s, %s, %s, %s, %s, %s, %s)": _function(Tables.register_broker),
    "SELECT posthouse.heartbeat(%s, %s, %s, %s, %s)": _function(Tables.heartbeat),
    "SELECT posthouse.record_loss(%s, %s)": _function(Tables.record_loss),
    "SELECT incarnation FROM posthouse.broker WHERE name = %s": _incarnation,
    "UPDATE posthouse.broker SET seen_at = '-infinity' WHERE incarnation = %s RETURNING id": _function(
        Tables.sign_off
    ),
    "SELECT posthouse.take_lease(%s, %s, %s)": _function(Tables.take_lease),
    "SELECT posthouse.renew_lease(%s, %s, %s)": _function(Tables.renew_lease),
    "SELECT posthouse.release_lease(%s, %s)": _function(Tables.release_lease),
    "SELECT posthouse.take_scopes(%s, %s, %s, %s)": _function(Tables.take_scopes),
    "SELECT posthouse.release_scope(%s, %s, %s)": _function(Tables.release_scope),
    DRAIN: _function(Tables.drain_broker),
    WANT: _function(Tables.want_scope),
    # Commits
    commit_call._CALL: lambda tables, values: [CommitGroupCall(tables, values).run()],
    commit_call._OPEN: lambda tables, values: [open_commit_path(tables, *values)],
    commit_call._RESERVE: lambda tables, values: [reserve_producer_ids(tables, *values)],
    commit_call._RESOLVE: lambda tables, values: [resolve_commit(tables, *values)],
    commit_call._RECORD_LOSS: _function(Tables.record_loss),
    follower._RECORD_LOSS: _function(Tables.record_loss),
    # Topics and logs
    loading._CLUSTER: _loaded_cluster,
    loading.AWAITS_SCOPES: lambda tables, values: _one(False),
    loading._TOPICS: lambda tables, values: _topic_rows(tables, None),
    f"{loading._TOPICS} AND id = ANY (%s)": lambda tables, values: _topic_rows(tables, values[0]),
    loading._LOGS: lambda tables, values: [_log_row(each) for each in tables.logs.values()],
    f"{loading._LOGS} WHERE l.topic = ANY (%s)": (
        lambda tables, values: [_log_row(each) for each in tables.logs_of(values[0])]
    ),
    loading.PRODUCERS: lambda tables, values: _producer_rows(tables, None),
    "SELECT log, last, first, producer FROM aborted": _aborted_rows,
    definitions._CREATE_TOPICS: _create_topics,
    definitions._CHANGE_TOPIC: _change_topic,
    definitions._SCOPELESS: _scopeless,
    definitions._GIVE_TOPICS: _give_topics,
    definitions._GIVE_LOGS: _give_logs,
    definitions._PUT_LOGS: _put_logs,
    definitions._NAMESAKES: _namesakes,
    definitions._DELETE_TOPICS: _delete_topics,
    definitions._DELETE_LOGS: _delete_logs,
    definitions._LOCK_LOGS: _nothing,
    definitions._NOTE_CHANGE: _function(Tables.note_change),
    definitions._PUT_STATE: _put_state,
    definitions._FOUND_LOGS: (
        lambda tables, values: [(*_log_row(each)[:3], each.namespaces) for each in tables.logs_of(values[0])]
    ),
    "SELECT check_lease(%s, %s, %s)": _function(Tables.check_lease),
    topics_in_doubt.CHECK_LEASE: _function(Tables.check_lease),
    topics_in_doubt.LOCK_CHANGES: _nothing,
    "SELECT * FROM read_changes(%s)": _read_changes,
    follower._CHANGED: _changed_logs,
    follower._PRODUCERS: lambda tables, values: _producer_rows(tables, numbers(values[0])),
    # Records
    pieces._PIECES: _pieces,
    pieces._PIECES_AND_ABORTED: _pieces_and_aborted,
    reads._ABORTED: _aborted_between,
    "SELECT substring(data FROM %s FOR %s) FROM inline_data WHERE slot = %s AND id = %s": _read_inline,
    """
        SELECT substring(data.data FROM wanted.pos + 1 FOR wanted.size)
          FROM unnest(%s::smallint[], %s::bigint[], %s::integer[], %s::integer[]) WITH ORDINALITY
               AS wanted (slot, id, pos, size, place)
          LEFT JOIN inline_data AS data ON data.slot = wanted.slot AND data.id = wanted.id
         ORDER BY wanted.place
        """: _read_inline_runs,
    reads._LATER: _later,
    reads._LATEST: _latest,
    # State
    loading._STATE: lambda tables, values: _state_rows(tables, None),
    f"{loading._STATE} WHERE space IN ({', '.join(str(int(each)) for each in sorted(COORDINATORS))})": (
        lambda tables, values: _state_rows(tables, COORDINATORS)
    ),
    f"{loading._STATE} WHERE space = ANY (%s)": lambda tables, values: _state_rows(tables, values[0]),
    state_reader._OF_SHARD: _of_shard,
    state_reader._OF_OWNERS: _of_owners,
    state_reader._OFFSETS_OF_SHARD: _offsets_of_shard,
    state_reader._OFFSETS_OF_GROUPS: _offsets_of_groups,
    state_reader._OF_SPACE: _of_space,
    state_reader._OF_NAMESPACES: _of_namespaces,
    state_reader._KEYS_OF_TOPICS: _keys_of_topics,
}
STATEMENTS = {_text(text): run for text, run in _BY_TEXT.items()}
