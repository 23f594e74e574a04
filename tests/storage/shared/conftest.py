"""One server for all tests of a process, and an empty migrated database for each."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest

from posthouse.model.clock import ManualClock
from posthouse.storage.shared.database import Database
from posthouse.storage.shared.migrations import migrate
from tests.postgres import PostgresServer, new_database, running_server
from tests.storage.shared.shared_logs import SharedLogs

_TEMPLATE = "migrated"


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with running_server() as server:
        server.execute(f"CREATE DATABASE {_TEMPLATE}")
        asyncio.run(_migrate(server.url(_TEMPLATE)))
        yield server


async def _migrate(url: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await migrate(connection)


@pytest.fixture
async def logs(postgres: PostgresServer, clock: ManualClock) -> AsyncIterator[SharedLogs]:
    with new_database(postgres, _TEMPLATE) as url:
        database = Database(url)
        connection = await database.connect("tests")
        made = SharedLogs(database, connection, clock)
        await made.take_lease()
        yield made
        await connection.close()
