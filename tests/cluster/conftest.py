import asyncio
from collections.abc import Callable, Iterator, Mapping

import psycopg
import pytest
import uvloop

from posthouse.storage.shared.database import Database
from tests.cluster.schema import prepare_template
from tests.postgres import PostgresServer, need_postgres, new_database, running_server


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Brokers run on uvloop."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    need_postgres()
    with running_server() as server:
        prepare_template(server)
        yield server


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    """The address of a database with Posthouse's tables."""
    with new_database(postgres, "posthouse_template") as made:
        yield made


@pytest.fixture
def database(url: str) -> Database:
    return Database(url)


@pytest.fixture
def sql(url: str) -> Iterator["psycopg.Connection[tuple[object, ...]]"]:
    with psycopg.connect(url, autocommit=True, options="-c search_path=posthouse") as connection:
        yield connection
