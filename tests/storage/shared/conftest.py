"""An empty migrated database for each test, storages on it, and a server of S3 for all of one process."""

from collections.abc import AsyncIterator, Iterator

import pytest

from posthouse.model.clock import ManualClock
from posthouse.storage.shared.database import Database
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.shared.objects.memory import MemoryObjectStore
from tests.postgres import MIGRATED, PostgresServer, new_database
from tests.s3 import S3Server, running_s3
from tests.storage.shared.faulty_objects import FaultyObjectStore
from tests.storage.shared.opened import make_shared
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


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[Database]:
    with new_database(postgres, MIGRATED) as url:
        yield Database(url)


@pytest.fixture
def objects(clock: ManualClock) -> FaultyObjectStore:
    return FaultyObjectStore(MemoryObjectStore(clock))


@pytest.fixture
async def shared(
    database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> AsyncIterator[SharedStorage]:
    made = await make_shared(database, objects, clock)
    await made.open()
    yield made
    await made.close()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    with running_s3() as server:
        yield server
