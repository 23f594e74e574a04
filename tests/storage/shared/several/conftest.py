"""Three storages on one database: a is the coordinator, b and c are members."""

from collections.abc import AsyncIterator

import pytest

from posthouse.model.clock import ManualClock
from posthouse.storage.shared.database import Database
from tests.storage.shared.faulty_objects import FaultyObjectStore
from tests.storage.shared.opened import make_member, make_shared
from tests.storage.shared.several.brokers import Brokers


@pytest.fixture
async def brokers(
    database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> AsyncIterator[Brokers]:
    made = [await make_shared(database, objects, clock)]
    made += [await make_member(database, objects, clock) for _ in range(2)]
    for each in made:
        await each.open()
    yield Brokers(*made)
    for each in reversed(made):
        await each.close()
