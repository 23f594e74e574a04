"""What is archived may go by `retention.local.*`, and nothing before the archiver has committed it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from posthouse.broker.appending import Produced
from posthouse.broker.broker import Broker
from posthouse.broker.groups.committing import NewOffset
from posthouse.broker.groups.membership import MemberIdentity
from posthouse.broker.topics import NewTopic
from posthouse.model.clock import ManualClock
from posthouse.model.ids import ARCHIVE_GROUP, GroupId, MemberId, PartitionId
from posthouse.model.topics import Topic
from posthouse.settings import Settings
from posthouse.storage.contract import Storage
from posthouse.storage.memory.engine import MemoryStorage
from tests.storage.batches import make_batch
from tests.storage.stores import file_storage

NO_PRODUCER = MemberIdentity(member=MemberId(""))
SETTINGS = {"retention.local.ms": "1000", "retention.ms": "-1", "segment.bytes": "100"}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["memory", "file"])
async def broker(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Broker]:
    storage: Storage
    storage = MemoryStorage(clock) if request.param == "memory" else file_storage(tmp_path / "d", clock=clock)
    broker = Broker(storage, Settings(memory=True), clock)
    await broker.start()
    await broker.coordinate()
    yield broker
    await broker.stop()


async def filled(broker: Broker, name: str, records: int) -> Topic:
    [topic] = await broker.create_topics([NewTopic(name=name, partitions=1, overrides=SETTINGS)])
    assert isinstance(topic, Topic)
    for number in range(records):
        batch = memoryview(make_batch(b"%d" % number, timestamps=[broker.now_ms()]))
        appending = broker.append([Produced(topic, 0, batch)])
        assert appending.future is not None
        await appending.future
    return topic


async def commit(broker: Broker, group: GroupId, topic: Topic, offset: int) -> None:
    new = NewOffset(partition=PartitionId(topic.id, 0), offset=offset)
    assert await broker.groups.offsets.commit(group, NO_PRODUCER, [new]) == [None]


async def test_nothing_goes_before_the_commit(broker: Broker, clock: ManualClock) -> None:
    topic, other = await filled(broker, "orders", 10), await filled(broker, "others", 10)
    clock.advance(3600)
    await commit(broker, GroupId("billing"), topic, 10)
    await commit(broker, ARCHIVE_GROUP, other, 10)
    await broker.retention.enforce()
    assert broker.bounds(topic, 0).start == 0
    assert broker.bounds(other, 0).start == 9
    await commit(broker, ARCHIVE_GROUP, topic, 6)
    await broker.retention.enforce()
    assert broker.bounds(topic, 0).start == 6


async def test_a_topic_of_the_same_name_is_not_archived_by_the_old_commit(
    broker: Broker, clock: ManualClock
) -> None:
    topic = await filled(broker, "orders", 5)
    await commit(broker, ARCHIVE_GROUP, topic, 5)
    await broker.delete_topics([topic])
    again = await filled(broker, "orders", 10)
    clock.advance(3600)
    await broker.retention.enforce()
    assert broker.bounds(again, 0).start == 0
