"""An empty shared storage for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from posthouse.model.clock import SystemClock
from posthouse.storage.shared.stores import SharedStores
from tests.postgres import MIGRATED, PostgresServer, new_database
from tests.storage.shared.transfer.storages import make_stores


@pytest.fixture
def real_clock() -> SystemClock:
    return SystemClock()


@pytest.fixture
async def stores(
    postgres: PostgresServer, tmp_path: Path, real_clock: SystemClock
) -> AsyncIterator[SharedStores]:
    with new_database(postgres, MIGRATED) as url:
        made = make_stores(url, tmp_path / "objects", real_clock)
        yield made
        await made.close()
