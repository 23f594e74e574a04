"""Transactions of the simulated database see what PostgreSQL's see."""

import pytest

from posthouse.storage.shared import state_reader
from posthouse.storage.shared.logs import definitions
from posthouse.storage.spaces import Space
from tests.simulation.cluster.database_server import DatabaseServer, Transaction
from tests.simulation.cluster.links import Links
from tests.simulation.cluster.statements import SNAPSHOT, Row, statement_of
from tests.simulation.world import World

_PUT = statement_of(definitions._PUT_STATE)
_READ = statement_of(state_reader._OF_SPACE)


@pytest.fixture
def server() -> DatabaseServer:
    world = World(1)
    made = DatabaseServer(world, Links(world))
    put(made, b"before")
    return made


def put(target: DatabaseServer | Transaction, key: bytes) -> None:
    values = (int(Space.EXCHANGES), b"owner", key, b"value")
    if isinstance(target, Transaction):
        target.run(_PUT, values)
    else:
        target.execute(_PUT, values)


def keys(rows: list[Row]) -> list[bytes]:
    return sorted(row[0] for row in rows)


def read(transaction: Transaction) -> list[bytes]:
    return keys(transaction.run(_READ, (int(Space.EXCHANGES),)))


def test_a_statement_sees_what_others_committed_since_the_one_before_it(server: DatabaseServer) -> None:
    transaction = Transaction(server)
    assert read(transaction) == [b"before"]
    put(server, b"other")
    assert read(transaction) == [b"before", b"other"]


def test_a_statement_sees_what_its_transaction_did_and_others_do_not(
    server: DatabaseServer,
) -> None:
    transaction = Transaction(server)
    put(transaction, b"own")
    put(server, b"other")
    assert read(transaction) == [b"before", b"other", b"own"]
    assert keys(server.execute(_READ, (int(Space.EXCHANGES),))) == [b"before", b"other"]


def test_a_snapshot_stays_as_it_was(server: DatabaseServer) -> None:
    transaction = Transaction(server)
    transaction.run(SNAPSHOT, None)
    put(server, b"other")
    assert read(transaction) == [b"before"]
