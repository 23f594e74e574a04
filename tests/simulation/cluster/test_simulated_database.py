"""PostgreSQL answers as the simulated database does: the statements of simulated lives, in the same order.

The functions of the schema look for `clock_timestamp` in their own schema first, and find one there that
tells the time of the simulation.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg
import pytest

from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.scopes import HOUSEKEEPING, scope_of_log
from posthouse.storage.operations import Trim
from posthouse.storage.outcomes import Outcome
from posthouse.storage.shared.commits import commit_call
from posthouse.storage.shared.commits.commit_group import CommitGroup, CommitVerdict, PendingCommit
from posthouse.storage.shared.logs import definitions, loading
from posthouse.storage.shared.logs.shared_log import SharedLog
from tests.postgres import MIGRATED, PostgresServer, new_database
from tests.simulation.cluster.cluster_scenario import ClusterScenario
from tests.simulation.cluster.statements import STATEMENTS, Row, statement_of

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


class Housekeeper:
    """A broker that comes when the leases of all others are over, and holds scopes of housekeeping only."""

    def __init__(self, both: Compared, holder: UUID) -> None:
        self._both = both
        self._holder = holder
        [(lease,)] = self._rows(_TAKE_LEASE, [holder, 3.0, "{}"])
        self._epoch = lease["epoch"]
        self.names = [each.name for each in HOUSEKEEPING]
        [(taken,)] = self._rows(_TAKE_SCOPES, [holder, self._epoch, self.names, "{}"])
        assert sorted(taken["taken"]) == self.names
        [(self._number, _, _)] = self._rows(commit_call._OPEN, [holder, self._epoch, False, 0, 0, 0])

    def _rows(self, text: str, values: Any) -> list[Row]:
        outcome = self._both.ask(text, values)
        assert not isinstance(outcome, psycopg.Error)
        return outcome

    def trim(self, number: int, offset: int, scopes: list[str]) -> list[Row] | psycopg.Error:
        """The log with this number."""
        partition = PartitionId(TopicId(bytes(16)), number)
        log = SharedLog(number, partition, "t")
        done: asyncio.Future[list[Outcome]] = asyncio.Future(loop=self._both.scenario.loop)
        commit = PendingCommit([Trim(partition, offset)], 0, done, {}, {partition: log})
        arguments = CommitGroup([commit]).arguments({})
        values = [self._holder, self._epoch, 0, self._number + 1, 0, scopes, None, [], [], *arguments]
        outcome = self._both.ask(commit_call._CALL, values)
        if not isinstance(outcome, psycopg.Error):
            self._number += 1
        return outcome


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
    with _life(postgres, 4) as (both, scenario):
        scenario.world.now_ns += 3600 * 10**9
        housekeeper = Housekeeper(both, UUID(int=1))
        verdicts = set()
        for log in list(scenario.server.tables.logs.values()):
            own = scope_of_log(log.id).name
            offset = (log.start + log.next + 1) // 2
            others = [name for name in housekeeper.names if name != own]
            refused = housekeeper.trim(log.id, offset, others)
            assert isinstance(refused, psycopg.Error) and refused.sqlstate == "PH006"
            for above in (0, 10_000, -10_000):
                [(verdict, *_)] = _rows(housekeeper.trim(log.id, offset + above, [own]))
                verdicts.update(verdict)
        missing = max(scenario.server.tables.logs) + 1
        [(verdict, *_)] = _rows(housekeeper.trim(missing, 1, [scope_of_log(missing).name]))
        both.ask(definitions._DELETE_LOGS, [[next(iter(scenario.server.tables.topics))]])
        for log in list(scenario.server.tables.logs.values()):
            [(deleted, *_)] = _rows(housekeeper.trim(log.id, log.next, [scope_of_log(log.id).name]))
            verdicts.update(deleted)
        assert verdict == [CommitVerdict.DELETED]
        assert verdicts == {CommitVerdict.DONE, CommitVerdict.COORDINATED, CommitVerdict.DELETED}
        both.ask(loading._LOGS)


def _rows(outcome: list[Row] | psycopg.Error) -> list[Row]:
    assert not isinstance(outcome, psycopg.Error), outcome
    return outcome
