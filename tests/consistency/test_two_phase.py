"""A transaction of PostgreSQL and one of the log: both or neither, whatever goes wrong in this process."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from posthouse.client import Client
from posthouse.client.admin_client import AdminClient
from posthouse.client.errors import BrokerUnreachable, NotAllowed, ProducerFenced
from posthouse.consistency.errors import (
    DecidedOtherwise,
    NoTables,
    NoTransaction,
    Superseded,
    TransactionInDoubt,
)
from posthouse.consistency.two_phase import Step, TwoPhase, create_table
from posthouse.settings import Address
from posthouse.testing import ThreadBroker, running_broker
from tests.postgres import PostgresServer, free_port, need_postgres, new_database

Rows = list[int]
Connection = psycopg.Connection[Any]


@pytest.fixture(scope="module")
def broker() -> Iterator[ThreadBroker]:
    with running_broker(auto_create_topics=True, transaction_two_phase_commit_enable=True) as running:
        yield running


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    need_postgres()
    with new_database(postgres) as made:
        with psycopg.connect(made) as connection:
            create_table(connection)
            create_table(connection)
            connection.execute("CREATE TABLE numbers (number int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        yield made


class Both:
    """What the database and the log have; `id` is the transactional id and the topic."""

    def __init__(self, url: str, kafka: str, id: str) -> None:
        self.url = url
        self.kafka = kafka
        self.id = id

    def opened(
        self,
        on_step: Callable[[Step], object] = lambda step: None,
        connect: Callable[[], Connection] | None = None,
        **options: Any,
    ) -> TwoPhase:
        def step(step: Step) -> None:
            on_step(step)

        return TwoPhase(
            self.kafka, self.id, connect or (lambda: psycopg.connect(self.url)), on_step=step, **options
        )

    def write(self, two_phase: TwoPhase, *numbers: int) -> None:
        with two_phase.transaction() as transaction:
            for number in numbers:
                transaction.connection.execute("INSERT INTO numbers VALUES (%s)", [number])
                transaction.send(self.id, b"%d" % number, key=b"%d" % number)

    @property
    def database(self) -> Rows:
        with psycopg.connect(self.url) as connection:
            return [n for (n,) in connection.execute("SELECT number FROM numbers ORDER BY number")]

    @property
    def log(self) -> Rows:
        with Client(self.kafka) as client:
            client.topic(self.id, create=True)
            return sorted(int(message.value or b"") for message in client.messages(self.id))

    def check(self, *numbers: int) -> None:
        assert (self.database, self.log) == (list(numbers), list(numbers))


@pytest.fixture
def both(url: str, broker: ThreadBroker, request: pytest.FixtureRequest) -> Both:
    return Both(url, broker.kafka, f"t{abs(hash(request.node.nodeid))}")


class At:
    """Does something once, at a step."""

    def __init__(self, step: Step, act: Callable[[], object]) -> None:
        self._step = step
        self._act: Callable[[], object] | None = act

    def __call__(self, step: Step) -> None:
        if step is self._step and self._act is not None:
            act, self._act = self._act, None
            act()


def fail() -> None:
    raise RuntimeError("no")


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


class LostAnswer(psycopg.Connection[Any]):
    """The server commits, or not, and the connection breaks before it says so."""

    commits = True

    def commit(self) -> None:
        if self.info.transaction_status != psycopg.pq.TransactionStatus.INTRANS or not armed:
            super().commit()
            return
        armed.clear()
        if self.commits:
            super().commit()
        self.close()
        raise psycopg.OperationalError("the connection is lost")


class LostCommit(LostAnswer):
    commits = False


armed: list[bool] = []


def arm() -> None:
    armed.append(True)


@pytest.mark.parametrize("kind", [LostAnswer, LostCommit])
def test_a_connection_that_breaks_at_the_commit(both: Both, kind: type[LostAnswer]) -> None:
    with both.opened(At(Step.NOTED, arm), connect=lambda: kind.connect(both.url)) as two_phase:
        if kind.commits:
            both.write(two_phase, 1)
            both.check(1)
        else:
            with pytest.raises(psycopg.OperationalError):
                both.write(two_phase, 1)
            both.check()
        both.write(two_phase, 2)
    both.check(*([1, 2] if kind.commits else [2]))


def test_a_database_that_stays_away(both: Both) -> None:
    away = [False]

    def connect() -> Connection:
        if away[0]:
            raise psycopg.OperationalError("the database is away")
        return LostAnswer.connect(both.url)

    def lose() -> None:
        arm()
        away[0] = True

    with both.opened(At(Step.NOTED, lose), connect=connect) as two_phase:
        with pytest.raises(TransactionInDoubt):
            both.write(two_phase, 1)
        with pytest.raises(psycopg.OperationalError):
            both.write(two_phase, 2)
        away[0] = False
        both.write(two_phase, 3)
    both.check(1, 3)


def test_a_database_that_ends_the_session(both: Both) -> None:
    def end_all() -> None:
        with psycopg.connect(both.url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )

    for step in (Step.BEGUN, Step.PREPARED, Step.NOTED):
        with both.opened(At(step, end_all)) as two_phase:
            with pytest.raises(psycopg.OperationalError):
                both.write(two_phase, 1)
            both.check()
            both.write(two_phase, 2)
        both.check(2)
        with psycopg.connect(both.url) as connection:
            connection.execute("DELETE FROM numbers")
        both.id += "x"


def test_an_operator_decides_otherwise(both: Both, broker: ThreadBroker) -> None:
    def abort() -> None:
        with AdminClient(broker.admin) as admin:
            admin.post(f"/v1/transactions/{both.id}/abort")

    with both.opened(At(Step.DATABASE_COMMITTED, abort)) as two_phase:
        with pytest.raises(DecidedOtherwise):
            both.write(two_phase, 1)
        assert (both.database, both.log) == ([1], [])
        both.write(two_phase, 2)
        assert (both.database, both.log) == ([1, 2], [2])


def test_a_broker_that_is_away(url: str, tmp_path: Any) -> None:
    address = f"127.0.0.1:{free_port()}"
    settings: dict[str, Any] = {
        "data": tmp_path / "data",
        "kafka": Address.parse(address),
        "transaction_two_phase_commit_enable": True,
    }
    both = Both(url, address, "away")
    running = running_broker(**settings)
    running.__enter__()

    def stop() -> None:
        running.__exit__(None, None, None)

    with both.opened(At(Step.DATABASE_COMMITTED, stop), patience=0.2) as two_phase:
        with pytest.raises(TransactionInDoubt):
            both.write(two_phase, 1)
        with pytest.raises(BrokerUnreachable):
            both.write(two_phase, 2)
        with running_broker(**settings):
            assert both.log == []
            assert two_phase.recover() is True
            both.write(two_phase, 3)
            both.check(1, 3)


def test_a_broker_that_does_not_allow_it(url: str) -> None:
    with running_broker() as plain:
        both = Both(url, plain.kafka, "plain")
        refused = pytest.raises(NotAllowed, match="transaction_two_phase_commit_enable")
        with both.opened() as two_phase, refused:
            both.write(two_phase, 1)
        both.check()
