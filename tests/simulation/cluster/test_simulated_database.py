"""PostgreSQL answers as the simulated database does: the statements of simulated lives, in the same order.

The functions of the schema look for `clock_timestamp` in their own schema first, and find one there that
tells the time of the simulation.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.scopes import COORDINATOR, HOUSEKEEPING, NAMESPACES, Scope, owner_shards, scope_of_log
from posthouse.records.batch import parse_header
from posthouse.storage.operations import Append, Operation, Put, Refer, Run, Trim
from posthouse.storage.outcomes import Outcome
from posthouse.storage.shared import state_reader
from posthouse.storage.shared.commits import commit_call
from posthouse.storage.shared.commits.commit_group import CommitGroup, CommitVerdict, PendingCommit
from posthouse.storage.shared.commits.payloads import inline_payload
from posthouse.storage.shared.logs import definitions, loading
from posthouse.storage.shared.logs.shared_log import SharedLog
from posthouse.storage.spaces import OF_GROUPS, OF_NAMESPACES, Space
from tests.postgres import MIGRATED, PostgresServer, new_database
from tests.simulation.batches import Producer, make_batch
from tests.simulation.cluster.cluster_scenario import ClusterScenario
from tests.simulation.cluster.statements import STATEMENTS, Row, statement_of

SEED_WITH_QUEUES = 11
"""Topics and logs of several scopes of namespaces come up in it."""
_OF_SESSIONS = ("SET ", "SELECT set_config", "SELECT current_setting")
_APPROXIMATE = ("seconds_left", "seconds_since_start", "lease_seconds_left")
_PUT_LOGS = statement_of(definitions._PUT_LOGS)
_FIRST_ID = 1_000_000
_TAKE_LEASE = "SELECT posthouse.take_lease(%s, %s, %s)"
_TAKE_SCOPES = "SELECT posthouse.take_scopes(%s, %s, %s, %s)"
_LOADED = [
    loading._CLUSTER,
    loading._TOPICS,
    loading._LOGS,
    loading.PRODUCERS,
    loading._STATE,
    next(text for text in STATEMENTS if text.startswith(f"{loading._STATE} WHERE space IN")),
    "SELECT log, last, first, producer FROM aborted",
]
"""Brokers send them in snapshots, which are not observed."""
_PREPARED = f"""
CREATE FUNCTION posthouse.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS
    $$ SELECT to_timestamp(current_setting('simulated.now')::float8) $$;
ALTER TABLE posthouse.log ALTER id DROP IDENTITY;
CREATE SEQUENCE posthouse.simulated_log START {_FIRST_ID};
ALTER TABLE posthouse.log ALTER id SET DEFAULT nextval('posthouse.simulated_log');
"""
"""Logs get the numbers that they have in the simulation: PostgreSQL leaves some out where a log exists."""

Call = tuple[int, str, Any, list[Row] | psycopg.Error]
"""The time, the statement, its values, and the answer."""


class Observed:
    """What a simulated database was asked, and what it answered."""

    def __init__(self, seed: int) -> None:
        scenario = self.scenario = ClusterScenario(seed)
        self.calls: list[Call] = []
        scenario.server.observer = lambda statement, values, outcome: self.calls.append(
            (scenario.world.now_ns, statement, values, outcome)
        )
        result = scenario.run()
        assert result.is_good, str(result)


def _plain(value: Any, about: Callable[[float], Any] = float) -> Any:
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    if isinstance(value, list) and value and isinstance(value[0], UUID):
        return sorted(value)  # topics that have changed
    if isinstance(value, tuple | list):
        return [_plain(each, about) for each in value]
    if isinstance(value, dict):
        return {
            key: about(each) if key in _APPROXIMATE else _plain(each, about)
            for key, each in value.items()
            if key != "timeline"
        }
    return None if value == "" else value  # a function without a result


def _about(seconds: float) -> Any:
    return pytest.approx(float(seconds), abs=0.001)


def _comparable(outcome: list[Row] | psycopg.Error, about: Callable[[float], Any] = float) -> Any:
    if isinstance(outcome, psycopg.Error):
        return outcome.sqlstate
    rows = sorted((_plain(row, about) for row in outcome), key=repr)
    return [] if rows in ([[None]], [[]]) else rows


def _answer(connection: psycopg.Connection[Row], statement: str, values: Any) -> list[Row] | psycopg.Error:
    try:
        cursor = connection.execute(statement.encode(), values)
        return [] if cursor.description is None else cursor.fetchall()
    except psycopg.Error as error:
        return error


class Compared:
    """Asks PostgreSQL what the simulated database was asked, and compares the answers."""

    def __init__(self, connection: psycopg.Connection[Row], scenario: ClusterScenario) -> None:
        self._connection = connection
        self.scenario = scenario
        self.statements: Counter[str] = Counter()

    def repeat(self, call: Call) -> None:
        now_ns, statement, values, expected = call
        self._connection.execute("SELECT set_config('simulated.now', %s, false)", [str(now_ns / 1e9)])
        found = _answer(self._connection, statement, values)
        if statement == _PUT_LOGS:
            for (topic, partition), number in self.scenario.server.tables.log_ids.items():
                self._connection.execute(
                    "UPDATE log SET id = %s WHERE topic = %s AND partition = %s AND id >= %s",
                    [number, topic, partition, _FIRST_ID],
                )
        assert _comparable(found) == _comparable(expected, _about), f"{statement} {values} at {now_ns}"
        self.statements[statement] += 1

    def ask(self, text: str, values: Any = None) -> list[Row] | psycopg.Error:
        """Both, now that the life is over."""
        statement = statement_of(text)
        try:
            outcome: list[Row] | psycopg.Error = self.scenario.server.execute(statement, values)
        except psycopg.Error as error:
            outcome = error
        self.repeat((self.scenario.world.now_ns, statement, values, outcome))
        return outcome


class Latecomer:
    """A broker that comes when the leases of all others are over, and holds scopes of some kinds only."""

    def __init__(self, both: Compared, holder: UUID, scopes: Sequence[Scope]) -> None:
        self._both = both
        self._holder = holder
        [(lease,)] = self._rows(_TAKE_LEASE, [holder, 3.0, "{}"])
        self._epoch = lease["epoch"]
        names = sorted(each.name for each in scopes)
        [(taken,)] = self._rows(_TAKE_SCOPES, [holder, self._epoch, names, "{}"])
        assert sorted(taken["taken"]) == names
        [(self._number, _, _)] = self._rows(commit_call._OPEN, [holder, self._epoch, False, 0, 0, 0])

    def _rows(self, text: str, values: Any) -> list[Row]:
        return _rows(self._both.ask(text, values))

    def commit(self, operations: Sequence[Operation], *scopes: Scope) -> list[Row] | psycopg.Error:
        """Partitions are `partition_of` logs. The call names these scopes."""
        logs = {
            each.partition: SharedLog(each.partition.index, each.partition, "t")
            for each in operations
            if not isinstance(each, Put)
        }
        done: asyncio.Future[list[Outcome]] = asyncio.Future(loop=self._both.scenario.loop)
        group = CommitGroup([PendingCommit(operations, 0, done, logs)])
        payload = inline_payload(group.payload_order())
        values = [self._holder, self._epoch, 0, self._number + 1, 0, [each.name for each in scopes]]
        values += [payload.inline, payload.keys, payload.sizes, *group.arguments(payload.places, {})]
        outcome = self._both.ask(commit_call._CALL, values)
        if not isinstance(outcome, psycopg.Error):
            self._number += 1
        return outcome

    def verdicts(self, operations: Sequence[Operation], *scopes: Scope) -> list[int]:
        [(verdicts, *_)] = _rows(self.commit(operations, *scopes))
        return list(verdicts)

    def check_lease(self, *scopes: Scope) -> list[Row] | psycopg.Error:
        names = [each.name for each in scopes]
        return self._both.ask("SELECT check_lease(%s, %s, %s)", [self._holder, self._epoch, names])


def partition_of(log: int) -> PartitionId:
    return PartitionId(TopicId(bytes(16)), log)


def append(log: int, *, transactional: bool = False, admission: bytes | None = None) -> Append:
    producer = Producer(7, 0) if transactional else None
    batch = memoryview(make_batch([1], producer, 0 if transactional else -1, transactional=transactional))
    return Append(partition_of(log), batch, parse_header(batch), required=False, admission=admission)


def refused(outcome: list[Row] | psycopg.Error) -> str | None:
    assert isinstance(outcome, psycopg.Error), outcome
    return outcome.sqlstate


@contextmanager
def _life(postgres: PostgresServer, seed: int) -> Iterator[tuple[Compared, ClusterScenario]]:
    """All of it, on both databases."""
    observed = Observed(seed)
    with new_database(postgres, MIGRATED) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(_PREPARED)
        options = "-c search_path=posthouse,pg_catalog -c simulated.now=0 -c synchronous_commit=off"
        with psycopg.connect(url, autocommit=True, options=options) as connection:
            both = Compared(connection, observed.scenario)
            for call in observed.calls:
                if not call[1].startswith(_OF_SESSIONS):
                    both.repeat(call)
            observed.scenario.server.observer = None
            yield both, observed.scenario


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", [4, 11])
def test_postgresql_answers_the_same(postgres: PostgresServer, seed: int) -> None:
    with _life(postgres, seed) as (both, _):
        assert len(both.statements) > 20 and both.statements.total() > 500
        for text in _LOADED:
            both.ask(text)
        for since in (-1, 0, 1, 10_000):
            both.ask("SELECT * FROM read_changes(%s)", [since])


@pytest.mark.timeout(120)
def test_postgresql_lets_the_same_logs_be_trimmed(postgres: PostgresServer) -> None:
    with _life(postgres, SEED_WITH_QUEUES) as (both, scenario):
        scenario.world.now_ns += 3600 * 10**9
        housekeeper = Latecomer(both, UUID(int=1), HOUSEKEEPING)
        verdicts = set()

        def trim(log: int, offset: int, *scopes: Scope) -> None:
            verdicts.update(housekeeper.verdicts([Trim(partition_of(log), offset)], *scopes))

        logs = list(scenario.server.tables.logs.values())
        for log in logs:
            own = NAMESPACES[log.namespaces or 0]
            assert refused(housekeeper.commit([Trim(partition_of(log.id), 1)], own)) == "PH001"
            trim(log.id, (log.start + log.next + 1) // 2)
            for above in (0, 10_000, -10_000):
                trim(log.id, (log.start + log.next + 1) // 2 + above, scope_of_log(log.id))
        assert verdicts == {CommitVerdict.DONE, CommitVerdict.OF_ANOTHER}
        trim(max(scenario.server.tables.logs) + 1, 1)
        both.ask(definitions._DELETE_LOGS, [[next(iter(scenario.server.tables.topics))]])
        for log in logs:
            trim(log.id, log.next)
        assert verdicts == {CommitVerdict.DONE, CommitVerdict.OF_ANOTHER, CommitVerdict.DELETED}
        both.ask(loading._LOGS)


@pytest.mark.timeout(120)
def test_postgresql_lets_the_same_scopes_write_to_logs_of_namespaces(postgres: PostgresServer) -> None:
    with _life(postgres, SEED_WITH_QUEUES) as (both, scenario):
        scenario.world.now_ns += 3600 * 10**9
        broker = Latecomer(both, UUID(int=1), NAMESPACES)
        tables = scenario.server.tables
        feeding = {each.id: each.namespaces for each in tables.logs.values() if each.namespaces is not None}
        ordinary = next(each.id for each in tables.logs.values() if each.namespaces is None)
        assert len(set(feeding.values())) > 1
        done, of_another = [CommitVerdict.DONE], [CommitVerdict.OF_ANOTHER]
        for log, number in feeding.items():
            own, other = NAMESPACES[number], NAMESPACES[(number + 1) % 16]
            for each in (append(log), Trim(partition_of(log), 0)):
                assert broker.verdicts([each]) == broker.verdicts([each], other) == of_another
                assert broker.verdicts([each], own) == broker.verdicts([each], other, own) == done
            # Records of transactions reach queues when these are committed.
            admitted = append(log, transactional=True, admission=b"not")
            assert broker.verdicts([admitted]) == [CommitVerdict.NOT_ADMITTED]
            refer = Refer(partition_of(log), [Run(partition_of(ordinary), 0, 1, 1)])
            assert refused(broker.commit([refer])) == refused(broker.commit([refer], other)) == "PH006"
            assert broker.verdicts([refer], own) == done
        for named in ([], [NAMESPACES[0]]):
            assert broker.verdicts([append(ordinary)], *named) == done
        mixed = [append(ordinary), append(next(iter(feeding)))]
        assert broker.verdicts(mixed) == done + of_another
        assert refused(broker.commit([append(ordinary, transactional=True)], NAMESPACES[0])) == "PH006"
        _same_state_may_be_written(broker)
        assert broker.check_lease() == broker.check_lease(NAMESPACES[3], NAMESPACES[9]) == [(None,)]
        assert refused(broker.check_lease(NAMESPACES[3], COORDINATOR)) == "PH001"
        for text in (loading._LOGS, loading._STATE):
            both.ask(text)


def _same_state_may_be_written(broker: Latecomer) -> None:
    for space in Space:
        put = Put(space, b"\x00\x00\x00\x01v" + bytes(40), b"\x02")
        needs_scope = space in (Space.EXCHANGES, Space.BINDINGS, Space.QUEUES, Space.DELIVERY_LIMITS)
        if space in OF_GROUPS | OF_NAMESPACES and not needs_scope:
            _rows(broker.commit([put]))
        else:
            assert refused(broker.commit([put])) == "PH006"
        if space in OF_GROUPS | OF_NAMESPACES:
            _rows(broker.commit([put], NAMESPACES[5]))
        else:
            assert refused(broker.commit([put], NAMESPACES[5])) == "PH006"


@pytest.mark.timeout(120)
def test_postgresql_gives_topics_to_the_same_scopes(postgres: PostgresServer) -> None:
    with _life(postgres, SEED_WITH_QUEUES) as (both, scenario):
        scenario.world.now_ns += 3600 * 10**9
        broker = Latecomer(both, UUID(int=1), NAMESPACES)
        tables = scenario.server.tables
        _rows(broker.commit([Put(Space.SOURCES, b"announced", bytes([9]))], NAMESPACES[9]))
        new = {UUID(int=number): name for number, name in enumerate(("announced", "plain", "own"), 100)}
        values = [list(new), list(new.values()), [2, 2, 1], [Jsonb({})] * 3, [None, None, 4]]
        _rows(both.ask(definitions._CREATE_TOPICS, values))
        _rows(both.ask(definitions._PUT_LOGS, [list(new)]))
        assert _namespaces_of(both, new) == {"announced": 9, "plain": None, "own": 4}
        assert _rows(both.ask(definitions._SCOPELESS, [["announced", "plain", "missing"]])) == [("plain",)]

        for number in (6, 7):  # the first one stays
            for statement in (definitions._GIVE_TOPICS, definitions._GIVE_LOGS):
                _rows(both.ask(statement, [number, list(new)]))
        assert _namespaces_of(both, new) == {"announced": 9, "plain": 6, "own": 4}
        assert _rows(both.ask(definitions._SCOPELESS, [["announced", "plain"]])) == []
        [log, *_] = [each.id for each in tables.logs.values() if each.topic == UUID(int=101)]
        assert broker.verdicts([append(log)], NAMESPACES[9]) == [CommitVerdict.OF_ANOTHER]
        assert broker.verdicts([append(log)], NAMESPACES[6]) == [CommitVerdict.DONE]

        assert _rows(both.ask(definitions._CHANGE_TOPIC, [3, Jsonb({}), UUID(int=101)]))
        _rows(both.ask(definitions._PUT_LOGS, [[UUID(int=101)]]))
        logs = _rows(both.ask(definitions._FOUND_LOGS, [[UUID(int=101)]]))
        assert [namespaces for *_, namespaces in logs] == [6, 6, 6]
        for scope in NAMESPACES:
            assert scope.namespace_shard is not None
            both.ask(state_reader._OF_NAMESPACES, [list(owner_shards(scope.namespace_shard))])
        for text in (loading._TOPICS, loading._LOGS, loading.AWAITS_SCOPES):
            both.ask(text)


def _namespaces_of(both: Compared, topics: Mapping[UUID, str]) -> dict[str, int | None]:
    """Of the topics, which are those of their logs."""
    found = {id: namespaces for id, *_, namespaces in _rows(both.ask(loading._TOPICS))}
    for _, topic, _, namespaces in _rows(both.ask(definitions._FOUND_LOGS, [list(topics)])):
        assert namespaces == found[topic]
    return {name: found[id] for id, name in topics.items()}


def _rows(outcome: list[Row] | psycopg.Error) -> list[Row]:
    assert not isinstance(outcome, psycopg.Error), outcome
    return outcome
