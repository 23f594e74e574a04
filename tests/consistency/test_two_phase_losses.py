"""Two-phase commits while the database, its connection or the broker is lost at the wrong moment."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from posthouse.client.admin_client import AdminClient
from posthouse.client.errors import BrokerUnreachable, NotAllowed
from posthouse.consistency.errors import DecidedOtherwise, TransactionInDoubt
from posthouse.consistency.two_phase import Step
from posthouse.settings import Address
from posthouse.testing import ThreadBroker, running_broker
from tests.consistency.both import At, Both, Connection
from tests.postgres import free_port


class LostAnswer(psycopg.Connection[Any]):
    """The server commits, or not, and the connection breaks before it says so."""

    commits = True

    def commit(self) -> None:
        if self.info.transaction_status != psycopg.pq.TransactionStatus.INTRANS or not armed:
            super().commit()
            return
        meanwhile = armed.pop()
        if self.commits:
            super().commit()
        self.close()
        meanwhile()
        raise psycopg.OperationalError("the connection is lost")


class LostCommit(LostAnswer):
    commits = False


armed: list[Callable[[], object]] = []
"""What happens before the answer is missed."""


def arm() -> None:
    armed.append(lambda: None)


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


@pytest.mark.parametrize("kind", [LostAnswer, LostCommit])
def test_a_connection_that_breaks_at_the_commit_of_the_database_alone(
    both: Both, kind: type[LostAnswer]
) -> None:
    """There are no records that would tell."""
    with both.opened(At(Step.WRITTEN, arm), connect=lambda: kind.connect(both.url)) as two_phase:
        with pytest.raises(TransactionInDoubt, match="look whether"), two_phase.transaction() as transaction:
            transaction.connection.execute("INSERT INTO numbers VALUES (1)")
        assert both.database == ([1] if kind.commits else [])
        both.write(two_phase, 2)
    assert (both.database, both.log) == ([1, 2] if kind.commits else [2], [2])


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_successor_that_decides_meanwhile(both: Both, goes_on: bool) -> None:
    """The row still tells that the database has committed, until the successor writes another."""

    def succeed() -> None:
        with both.opened() as successor:
            assert successor.recover() is True
            if goes_on:
                both.write(successor, 2)

    at_the_end = At(Step.NOTED, lambda: armed.append(succeed))
    with both.opened(at_the_end, connect=lambda: LostAnswer.connect(both.url)) as two_phase:
        if goes_on:
            with pytest.raises(TransactionInDoubt, match="another process"):
                both.write(two_phase, 1)
        else:
            both.write(two_phase, 1)
        both.write(two_phase, 3)
    both.check(*([1, 2, 3] if goes_on else [1, 3]))


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


def test_an_operator_decides_otherwise(both: Both, two_phase_broker: ThreadBroker) -> None:
    def abort() -> None:
        with AdminClient(two_phase_broker.admin) as admin:
            admin.post(f"/v1/transactions/{both.id}/abort")

    with both.opened(At(Step.DATABASE_COMMITTED, abort)) as two_phase:
        with pytest.raises(DecidedOtherwise):
            both.write(two_phase, 1)
        assert (both.database, both.log) == ([1], [])
        both.write(two_phase, 2)
        assert (both.database, both.log) == ([1, 2], [2])


def test_a_broker_that_is_away(two_phase_url: str, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    settings: dict[str, Any] = {
        "data": tmp_path / "data",
        "kafka": Address.parse(address),
        "transaction_two_phase_commit_enable": True,
    }
    both = Both(two_phase_url, address, "away")
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


def test_a_broker_that_does_not_allow_it(two_phase_url: str) -> None:
    with running_broker() as plain:
        both = Both(two_phase_url, plain.kafka, "plain")
        refused = pytest.raises(NotAllowed, match="transaction_two_phase_commit_enable")
        with both.opened() as two_phase, refused:
            both.write(two_phase, 1)
        both.check()
