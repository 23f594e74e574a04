"""Two storages that serve, and of which one after the other is the coordinator's."""

from collections.abc import AsyncIterator

import pytest

from posthouse.model.clock import ManualClock
from posthouse.model.errors import NotLeader, Unavailable
from posthouse.model.scopes import COORDINATOR
from posthouse.records.batch import parse_header
from posthouse.records.builder import BatchBuilder
from posthouse.storage.operations import Append, Put
from posthouse.storage.shared.database import Database, ScopeNeeded
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.shared.logs import loading
from posthouse.storage.shared.objects.memory import MemoryObjectStore
from posthouse.storage.spaces import Space
from tests.storage.batches import append, make_topic
from tests.storage.shared.opened import TestLease, make_member, take_lease

TOPIC = make_topic("orders")
PARTITION = TOPIC.partition(0)


def by_producer(id: int) -> Append:
    builder = BatchBuilder(producer_id=id, producer_epoch=0, base_sequence=0)
    builder.add(None, b"x", timestamp=1)
    batch = builder.build()
    return Append(PARTITION, memoryview(batch), parse_header(batch))


class Two:
    def __init__(self, database: Database) -> None:
        self.database = database
        self.storages: list[SharedStorage] = []
        self.leases: list[TestLease] = []

    async def give(self, number: int) -> None:
        """The database gives the scope to this storage."""
        for each in self.leases:
            each.scopes.discard(COORDINATOR)
        self.leases[number].scopes.add(COORDINATOR)
        async with await self.database.connect("tests") as connection:
            await connection.execute(
                "UPDATE scope SET holder = %s, epoch = epoch + 1 WHERE name = 'coordinator'",
                [self.leases[number].incarnation],
            )


@pytest.fixture
async def two(database: Database, clock: ManualClock) -> AsyncIterator[Two]:
    made = Two(database)
    objects = MemoryObjectStore(clock)
    for number in range(2):
        lease = await take_lease(database, scopes=[COORDINATOR] if number == 0 else [])
        made.leases.append(lease)
        made.storages.append(await make_member(database, objects, clock, lease=lease))
        await made.storages[-1].open()
    yield made
    for each in made.storages:
        await each.close()


async def test_the_coordinator_changes_there_and_back(two: Two) -> None:
    first, second = two.storages
    await first.create_topics([TOPIC])
    await second.refresh_definitions()
    for written in range(4):
        number = written % 2
        now, other = two.storages[number], two.storages[1 - number]
        await now.coordinate()
        # What the other one has stored is known.
        assert now.take_state(Space.PRODUCER_IDS) == ({b"q": b"%d" % written} if written else {})
        assert len(now.producers(PARTITION)) == written
        await now.commit([by_producer(written), Put(Space.PRODUCER_IDS, b"q", b"%d" % (written + 1))])
        with pytest.raises(ScopeNeeded):
            other.commit([Put(Space.PRODUCER_IDS, b"q", b"wrong")])
        with pytest.raises(NotLeader):
            await other.update_topic(TOPIC)
        made = [make_topic(f"by-{written}"), make_topic(f"by-other-{written}")]
        await now.create_topics(made[:1])
        await other.create_topics(made[1:])
        for each in two.storages:
            await each.refresh_definitions()
            assert all(topic.id in each.topics for topic in made)
        await now.stop_coordinating()
        with pytest.raises(ScopeNeeded):
            now.commit([Put(Space.PRODUCER_IDS, b"q", b"late")])
        with pytest.raises(NotLeader):
            now.aborted(PARTITION, 0, 10)
        assert now._logs[PARTITION]._producers is None
        await two.give(1 - number)


async def test_a_load_that_fails_leaves_a_member(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = two.storages
    await first.create_topics([TOPIC])
    await first.commit([by_producer(1)])
    await first.stop_coordinating()
    await two.give(1)
    with monkeypatch.context() as patched:
        patched.setattr(loading, "_STATE", "SELECT space, key, value FROM missing")
        with pytest.raises(Unavailable):
            await second.coordinate()
    with pytest.raises(NotLeader):
        await second.update_topic(TOPIC)
    assert second.producers(PARTITION) == {}
    assert second._definition_follower._task is not None
    await second.coordinate()
    await second.commit([append(PARTITION, b"y")])
    assert list(second.producers(PARTITION)) == [1]
