"""Databases of applications: SQLite in a file, PostgreSQL where it is installed, MariaDB in make
test-databases."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from posthouse.client import Client
from posthouse.consistency.databases import Database, open_database
from posthouse.consistency.outbox_table import init
from posthouse.consistency.two_phase import create_table
from posthouse.testing import ThreadBroker, running_broker
from tests.consistency.both import Both
from tests.consistency.mariadb import MariaDbServer, need_mariadb
from tests.directories import IN_MEMORY
from tests.postgres import PostgresServer, need_postgres, new_database


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDbServer]:
    need_mariadb()
    with tempfile.TemporaryDirectory(dir=IN_MEMORY, prefix="posthouse-maria-") as place:
        Path(place).chmod(0o755)  # the server is another user
        server = MariaDbServer(Path(place))
        server.start()
        yield server
        server.stop()


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Of a database without tables."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/shop.db"
    elif request.param == "postgresql":
        need_postgres()
        server: PostgresServer = request.getfixturevalue("postgres")
        with new_database(server) as url:
            yield url
    else:
        mariadb: MariaDbServer = request.getfixturevalue("mariadb")
        yield mariadb.new_database()


@pytest.fixture
def url(empty_url: str) -> str:
    """With the tables, and one of the application's own."""
    with open_database(empty_url) as database:
        init(database)
        with database.transaction():
            database.run("CREATE TABLE orders (id integer PRIMARY KEY, item varchar(20))")
    return empty_url


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    with open_database(url) as opened:
        yield opened


@pytest.fixture(scope="module")
def broker() -> Iterator[ThreadBroker]:
    with running_broker(auto_create_topics=True) as running:
        yield running


@pytest.fixture
def client(broker: ThreadBroker) -> Iterator[Client]:
    with Client(broker.kafka) as made:
        yield made


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return f"t{abs(hash(request.node.nodeid))}"


@pytest.fixture(scope="session")
def two_phase_broker() -> Iterator[ThreadBroker]:
    with running_broker(auto_create_topics=True, transaction_two_phase_commit_enable=True) as running:
        yield running


@pytest.fixture
def two_phase_url(postgres: PostgresServer) -> Iterator[str]:
    """Of a database with the table of two-phase commits, and one of the application's own."""
    need_postgres()
    with new_database(postgres) as made:
        with psycopg.connect(made) as connection:
            create_table(connection)
            create_table(connection)
            connection.execute("CREATE TABLE numbers (number int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        yield made


@pytest.fixture
def both(two_phase_url: str, two_phase_broker: ThreadBroker, topic: str) -> Both:
    return Both(two_phase_url, two_phase_broker.kafka, topic)
