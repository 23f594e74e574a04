"""PostgreSQL answers as the simulated database does: the statements of simulated lives, in the same order.

The functions of the schema look for `clock_timestamp` in their own schema first, and find one there that
tells the time of the simulation.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest

from posthouse.storage.shared.logs import definitions
from tests.postgres import MIGRATED, PostgresServer, new_database
from tests.simulation.cluster.cluster_scenario import ClusterScenario
from tests.simulation.cluster.statements import Row, statement_of

_OF_SESSIONS = ("SET ", "SELECT set_config", "SELECT current_setting")
_APPROXIMATE = ("seconds_left", "seconds_since_start", "lease_seconds_left")
_PUT_LOGS = statement_of(definitions._PUT_LOGS)
_FIRST_ID = 1_000_000
_PREPARED = f"""
CREATE FUNCTION posthouse.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS
    $$ SELECT to_timestamp(current_setting('simulated.now')::float8) $$;
ALTER TABLE posthouse.log ALTER id DROP IDENTITY;
CREATE SEQUENCE posthouse.simulated_log START {_FIRST_ID};
ALTER TABLE posthouse.log ALTER id SET DEFAULT nextval('posthouse.simulated_log');
"""
"""Logs get the numbers that they have in the simulation: PostgreSQL leaves some out where a log exists."""


class Observed:
    """What a simulated database was asked, and what it answered."""

    def __init__(self, seed: int) -> None:
        scenario = ClusterScenario(seed)
        self.calls: list[tuple[int, str, Any, list[Row] | psycopg.Error]] = []
        scenario.server.observer = lambda statement, values, outcome: self.calls.append(
            (scenario.world.now_ns, statement, values, outcome)
        )
        result = scenario.run()
        assert result.is_good, str(result)
        self.log_ids: dict[tuple[UUID, int], int] = scenario.server.tables.log_ids


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


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", [4, 11])
def test_postgresql_answers_the_same(postgres: PostgresServer, seed: int) -> None:
    observed = Observed(seed)
    compared: Counter[str] = Counter()
    with new_database(postgres, MIGRATED) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(_PREPARED)
        options = "-c search_path=posthouse,pg_catalog -c simulated.now=0 -c synchronous_commit=off"
        with psycopg.connect(url, autocommit=True, options=options) as connection:
            for now_ns, statement, values, expected in observed.calls:
                if statement.startswith(_OF_SESSIONS):
                    continue
                connection.execute("SELECT set_config('simulated.now', %s, false)", [str(now_ns / 1e9)])
                found = _answer(connection, statement, values)
                if statement == _PUT_LOGS:
                    for (topic, partition), number in observed.log_ids.items():
                        connection.execute(
                            "UPDATE log SET id = %s WHERE topic = %s AND partition = %s AND id >= %s",
                            [number, topic, partition, _FIRST_ID],
                        )
                assert _comparable(found) == _comparable(expected, _about), (
                    f"{statement} {values} at {now_ns}"
                )
                compared[statement] += 1
    assert len(compared) > 20 and compared.total() > 500
