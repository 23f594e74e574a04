"""A transaction of PostgreSQL and one of the log: both or neither, whatever goes wrong in this process."""

import threading
from collections.abc import Callable

import psycopg
import pytest

from posthouse.client.errors import ProducerFenced
from posthouse.consistency.errors import (
    NoTables,
    NoTransaction,
    Superseded,
    TransactionInDoubt,
)
from posthouse.consistency.two_phase import Step, create_table
from tests.consistency.both import At, Both, Connection, fail


def test_both_are_committed(both: Both) -> None:
    seen: list[Step] = []
    with both.opened(seen.append) as two_phase:
        both.write(two_phase, 1, 2)
        both.write(two_phase, 3)
        both.check(1, 2, 3)
        assert two_phase.recover() is None
    assert seen == [*Step, *list(Step)[3:], *list(Step)[:3]]


@pytest.mark.parametrize("step", [Step.BEGUN, Step.WRITTEN, Step.PREPARED, Step.NOTED])
def test_neither_is_committed_if_something_fails(both: Both, step: Step) -> None:
    with both.opened(At(step, fail)) as two_phase:
        with pytest.raises(RuntimeError):
            both.write(two_phase, 1)
        both.check()
        both.write(two_phase, 2)
    both.check(2)


def test_neither_is_committed_if_the_database_refuses(both: Both) -> None:
    """At its commit, not before: everything was prepared."""
    with both.opened() as two_phase:
        both.write(two_phase, 1)
        with pytest.raises(psycopg.errors.UniqueViolation):
            both.write(two_phase, 2, 1)
        both.write(two_phase, 3)
    both.check(1, 3)


def test_an_error_that_the_application_has_swallowed(both: Both) -> None:
    """PostgreSQL would roll back, and say so without an error."""
    with both.opened() as two_phase:
        with pytest.raises(psycopg.errors.InFailedSqlTransaction), two_phase.transaction() as transaction:
            transaction.send(both.id, b"1")
            with pytest.raises(psycopg.errors.UndefinedTable):
                transaction.connection.execute("SELECT 1 FROM missing")
        both.check()


def test_only_the_database(both: Both) -> None:
    with both.opened() as two_phase:
        with two_phase.transaction() as transaction:
            transaction.connection.execute("INSERT INTO numbers VALUES (7)")
        assert (both.database, both.log) == ([7], [])
        with two_phase.transaction() as transaction:
            transaction.send(both.id, b"8")
        assert (both.database, both.log) == ([7], [8])


@pytest.mark.parametrize("end", [psycopg.Connection.commit, psycopg.Connection.rollback])
def test_a_transaction_that_was_ended_inside_of_the_block(
    both: Both, end: Callable[[Connection], None]
) -> None:
    with both.opened() as two_phase:
        with pytest.raises(NoTransaction, match="inside"), two_phase.transaction() as transaction:
            transaction.send(both.id, b"1")
            end(transaction.connection)
        both.check()


def test_connections_that_cannot_be_used(both: Both) -> None:
    made: list[Connection] = []

    def connect() -> Connection:
        made.append(psycopg.connect(both.url, autocommit=True))
        return made[-1]

    with both.opened(connect=connect) as two_phase:
        with pytest.raises(NoTransaction, match="autocommit"):
            both.write(two_phase, 1)
        made[0].autocommit = False
        made[0].execute("SELECT 1")
        with pytest.raises(NoTransaction, match="open already"):
            both.write(two_phase, 1)
        both.write(two_phase, 2)
    both.check(2)


def test_strict_isolation(both: Both) -> None:
    def connect() -> Connection:
        made = psycopg.connect(both.url)
        made.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        return made

    with both.opened(connect=connect) as two_phase:
        both.write(two_phase, 1)
        both.write(two_phase, 2)
    both.check(1, 2)


def test_a_commit_of_the_database_waits_for_its_disk(both: Both) -> None:
    made: list[Connection] = []
    shown: list[object] = []

    def connect() -> Connection:
        made.append(psycopg.connect(both.url, options="-c synchronous_commit=off"))
        return made[0]

    def look() -> None:
        shown.append(made[0].execute("SHOW synchronous_commit").fetchone())

    with both.opened(At(Step.NOTED, look), connect=connect) as two_phase:
        both.write(two_phase, 1)
    assert shown == [("on",)]


def test_a_database_without_the_table(both: Both) -> None:
    with psycopg.connect(both.url) as connection:
        connection.execute("DROP TABLE posthouse_two_phase")
    with both.opened() as two_phase:
        with pytest.raises(NoTables, match="create_table"):
            both.write(two_phase, 1)
        with psycopg.connect(both.url) as connection:
            create_table(connection)
        both.write(two_phase, 1)
    both.check(1)


def left_by_another(both: Both, step: Step) -> None:
    """What a process has left that was killed at this step: its connections are closed, and no more."""
    other = both.opened(At(step, fail))
    other._give_up = lambda connection: None  # type: ignore[method-assign]
    with pytest.raises(RuntimeError):
        both.write(other, 1)
    other.close()


@pytest.mark.parametrize(
    ("step", "outcome"),
    [
        (Step.BEGUN, None),
        (Step.PREPARED, False),
        (Step.NOTED, False),
        (Step.DATABASE_COMMITTED, True),
        (Step.COMMITTED, None),
    ],
)
def test_what_another_process_has_left(both: Both, step: Step, outcome: bool | None) -> None:
    left_by_another(both, step)
    numbers = [1] if step in (Step.DATABASE_COMMITTED, Step.COMMITTED) else []
    with both.opened() as two_phase:
        assert two_phase.recover() is outcome
        both.check(*numbers)
        both.write(two_phase, 2)
    both.check(*numbers, 2)


def test_the_row_of_another_cluster_decides_nothing(both: Both) -> None:
    """A new broker on an empty directory gives the same producer ids again."""
    left_by_another(both, Step.DATABASE_COMMITTED)
    with psycopg.connect(both.url) as connection:
        connection.execute("UPDATE posthouse_two_phase SET cluster = 'another'")
    with both.opened() as two_phase:
        assert two_phase.recover() is False


@pytest.mark.parametrize("step", [Step.BEGUN, Step.WRITTEN, Step.PREPARED])
def test_an_older_process_commits_nothing_after_its_successor_has_begun(both: Both, step: Step) -> None:
    """It was asleep, and its transactions were decided meanwhile: neither may be committed now."""
    successor = both.opened()
    with successor, both.opened(At(step, successor.recover)) as older:
        with pytest.raises((Superseded, ProducerFenced)):
            both.write(older, 1)
        both.write(successor, 2)
        both.check(2)


def test_a_successor_waits_for_the_database(both: Both) -> None:
    """The older process has written the row, and is about to commit: whether it does is open."""
    outcomes: list[bool | None] = []
    successor = both.opened()
    recovering = threading.Thread(target=lambda: outcomes.append(successor.recover()))

    def begin_to_recover() -> None:
        recovering.start()
        with psycopg.connect(both.url, autocommit=True) as connection:
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            while connection.execute(waiting).fetchone() == (0,):
                pass

    with successor:
        with both.opened(At(Step.NOTED, begin_to_recover)) as older:
            with pytest.raises(TransactionInDoubt):
                both.write(older, 1)
            recovering.join(60)
        assert outcomes == [True]
        both.check(1)
