"""A data directory that an earlier version wrote, with everything that the broker keeps as state.

`format2.tar.gz` was written by the last version that loaded state only as a whole: `stopped`, and `killed`
with frames to replay. Both have the same, once from before a checkpoint (1) and once from behind it (2):
offsets of groups, a transaction that ended and one that is open, a queue whose second message is
acknowledged, a share group that has accepted its first two records, and a user.
"""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from posthouse.broker.broker import Broker
from posthouse.broker.subscriptions.wishes import Taken, Wish
from posthouse.broker.transactions.transaction import TransactionState
from posthouse.model.clock import ManualClock
from posthouse.model.ids import GroupId, MemberId
from posthouse.settings import Settings
from posthouse.storage.files.engine import FileStorage
from posthouse.storage.spaces import Space
from tests.broker.queues.rig import Rig, Taker

ARCHIVE = Path(__file__).parents[1] / "storage" / "files" / "format2.tar.gz"
BOTH = (1, 2)


@pytest.fixture(params=["stopped", "killed"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    shutil.unpack_archive(ARCHIVE, tmp_path, filter="data")
    return tmp_path / str(request.param)


@pytest.fixture
async def broker(directory: Path) -> AsyncIterator[Broker]:
    settings = Settings(data=directory)
    clock = ManualClock()
    broker = Broker(FileStorage(directory, clock=clock, defaults=settings.topic_defaults()), settings, clock)
    await broker.start()
    await broker.coordinate()
    yield broker
    await broker.stop()


async def test_each_owner_can_be_loaded_alone(directory: Path) -> None:
    storage = FileStorage(directory, clock=ManualClock())
    await storage.open()
    assert len(storage.take_state(Space.OFFSETS, b"g")) == 2
    queues = storage.take_state(Space.QUEUES, b"/")
    assert len(queues) == 2
    for value in queues.values():
        assert storage.take_state(Space.QUEUE_PROGRESS, value[:16])
    for number in BOTH:
        assert len(storage.take_state(Space.OFFSETS, b"group-%d" % number)) == 2
        assert len(storage.take_state(Space.TRANSACTIONS, b"open-%d" % number)) == 1
        assert len(storage.take_state(Space.TRANSACTION_OFFSETS, b"open-%d" % number)) == 1
        assert len(storage.take_state(Space.SHARE_GROUPS, b"share-%d" % number)) == 2
    assert storage.take_state(Space.TRANSACTIONS).keys() == {b"ended-1", b"ended-2"}
    assert not storage.take_state(Space.TRANSACTION_OFFSETS)
    assert not storage.take_state(Space.QUEUE_PROGRESS)
    await storage.close()


async def test_offsets_and_transactions(broker: Broker) -> None:
    topic = broker.topic("t")
    offsets = broker.groups.offsets

    def committed(group: str) -> list[int | None]:
        found = [offsets.get(GroupId(group), partition) for partition in topic.partition_ids()]
        return [None if each is None else each.offset for each in found]

    assert (committed("g"), committed("group-1"), committed("group-2")) == ([2, 3], [1, 2], [2, 3])
    assert (committed("of-ended-1"), committed("of-ended-2")) == ([8, None], [9, None])
    for number in BOTH:
        assert committed(f"of-open-{number}") == [None, None]
        assert offsets.unstable(GroupId(f"of-open-{number}"), topic.partition(0))
        assert broker.transactions.ids.get(f"open-{number}").state is TransactionState.ONGOING
        assert broker.transactions.ids.get(f"ended-{number}").state is TransactionState.COMMITTED
    assert broker.bounds(topic, 1).stable == 0 < broker.bounds(topic, 1).end


async def test_queues_share_groups_and_users(broker: Broker) -> None:
    rig = Rig(broker)
    topic = broker.topic("t")
    for number in BOTH:
        taker = Taker()
        rig.found(f"q-{number}").subscribe(taker)
        await taker.has(2)
        assert taker.values == [b"one", b"three"]
        assert await rig.publish(b"routed", exchange=f"x-{number}") == [True]
        await taker.has(3)
        group, member = GroupId(f"share-{number}"), MemberId("m")
        wanted = topic.partition(0)
        wish = Wish(max_bytes=10_000, max_records=1)
        taken = (await broker.subscriptions.fetch(group, member, [wanted], wish, lambda: True))[wanted]
        assert isinstance(taken, Taken) and taken.runs[0].first == 2
        await broker.access.users.check_password(f"user-{number}", f"password of user {number}")
