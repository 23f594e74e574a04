"""An empty migrated database for each test, and a server of S3 for all of one process."""

from collections.abc import AsyncIterator, Iterator

import pytest

from posthouse.model.clock import ManualClock
from posthouse.storage.shared.database import Database
from tests.postgres import MIGRATED, PostgresServer, new_database
from tests.s3 import S3Server, running_s3
from tests.storage.shared.shared_logs import SharedLogs


@pytest.fixture
async def logs(postgres: PostgresServer, clock: ManualClock) -> AsyncIterator[SharedLogs]:
    with new_database(postgres, MIGRATED) as url:
        database = Database(url)
        connection = await database.connect("tests")
        made = SharedLogs(database, connection, clock)
        await made.take_lease()
        yield made
        await connection.close()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    with running_s3() as server:
        yield server
