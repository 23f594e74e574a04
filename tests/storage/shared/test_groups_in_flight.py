"""Uploads of several groups at the same time: calls stay in order, and a failure fails what is behind it."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from posthouse.model.clock import ManualClock
from posthouse.model.errors import PosthouseError
from posthouse.model.ids import PartitionId
from posthouse.storage.outcomes import Outcome
from posthouse.storage.shared.commits import committer
from posthouse.storage.shared.database import Database
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.shared.objects.memory import MemoryObjectStore
from posthouse.storage.shared.objects.store import Buffer, ObjectsAway
from tests.postgres import MIGRATED, PostgresServer, new_database
from tests.storage.batches import append, make_topic
from tests.storage.shared.opened import make_shared

IN_FLIGHT = 3


class HeldObjects(MemoryObjectStore):
    """Every put waits for the test."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.held: list[asyncio.Future[None]] = []

    async def put(self, key: str, data: Buffer) -> None:
        held = asyncio.get_running_loop().create_future()
        self.held.append(held)
        await held
        await super().put(key, data)

    async def until(self, count: int) -> None:
        """`count` puts wait."""
        async with asyncio.timeout(20):
            while len(self.held) < count:
                await asyncio.sleep(0.001)


@pytest.fixture
def objects(clock: ManualClock) -> HeldObjects:
    return HeldObjects(clock)


@pytest.fixture
async def storage(
    postgres: PostgresServer, clock: ManualClock, objects: HeldObjects, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[SharedStorage]:
    monkeypatch.setattr(committer, "_AHEAD_BYTES", 1)
    with new_database(postgres, MIGRATED) as url:
        made = await make_shared(Database(url), objects, clock)
        await made.open()
        yield made
        await made.close()


@pytest.fixture
async def partition(storage: SharedStorage) -> PartitionId:
    topic = make_topic("t", 1, latency="object")
    await storage.create_topics([topic])
    return PartitionId(topic.id, 0)


async def in_groups(
    storage: SharedStorage, objects: HeldObjects, partition: PartitionId, values: Sequence[bytes]
) -> list[asyncio.Future[list[Outcome]]]:
    """Commits of one record, each in a group of its own."""
    commits = []
    for number, value in enumerate(values, 1):
        commits.append(storage.commit([append(partition, value)]))
        await objects.until(number)
    return commits


async def test_calls_are_in_order_whichever_upload_ends_first(
    storage: SharedStorage, objects: HeldObjects, partition: PartitionId
) -> None:
    commits = await in_groups(storage, objects, partition, [b"1", b"2", b"3"])
    for held in reversed(objects.held[1:]):
        held.set_result(None)
    await asyncio.sleep(0.05)
    assert not any(each.done() for each in commits)
    objects.held[0].set_result(None)
    answers = await asyncio.gather(*commits)
    assert [answer[0].base_offset for answer in answers] == [0, 1, 2]


async def test_no_more_than_a_few_groups_are_in_flight(
    storage: SharedStorage, objects: HeldObjects, partition: PartitionId
) -> None:
    commits = await in_groups(storage, objects, partition, [b"1", b"2", b"3"])
    commits += [storage.commit([append(partition, b"4")]), storage.commit([append(partition, b"5")])]
    await asyncio.sleep(0.05)
    assert len(objects.held) == IN_FLIGHT
    objects.held[0].set_result(None)
    await objects.until(IN_FLIGHT + 1)
    for held in objects.held[1:]:
        held.set_result(None)
    answers = await asyncio.gather(*commits)
    assert [answer[0].base_offset for answer in answers] == [0, 1, 2, 3, 4]


async def test_storage_is_not_behind_before_all_uploads_are_in_flight(
    storage: SharedStorage, objects: HeldObjects, partition: PartitionId, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections are not read from while it is behind: then nothing would be uploaded meanwhile."""
    monkeypatch.undo()  # with the real sizes
    commits = []
    for number in range(1, IN_FLIGHT + 1):
        commits += [storage.commit([append(partition, bytes(2**20))]) for _ in range(4)]
        await objects.until(number)
        assert not storage.is_behind
    commits += [storage.commit([append(partition, bytes(2**20))]) for _ in range(5)]
    assert storage.is_behind
    for number in range(4):
        await objects.until(number + 1)
        objects.held[number].set_result(None)
    await asyncio.gather(*commits)
    assert not storage.is_behind


async def test_a_failed_upload_fails_what_is_behind_it_and_nothing_before_it(
    storage: SharedStorage, objects: HeldObjects, partition: PartitionId
) -> None:
    first, second, third = await in_groups(storage, objects, partition, [b"1", b"2", b"3"])
    waiting = storage.commit([append(partition, b"4")])
    objects.held[2].set_result(None)
    objects.held[1].set_exception(ObjectsAway("injected"))
    objects.held[0].set_result(None)
    assert (await first)[0].base_offset == 0
    for failed in (second, third, waiting):
        with pytest.raises(PosthouseError, match="injected"):
            await failed
    assert storage.unwritten_bytes == 0
    assert storage.bounds(partition).end == 1
    later = storage.commit([append(partition, b"5")])
    await objects.until(4)
    objects.held[-1].set_result(None)
    assert (await later)[0].base_offset == 1


async def test_a_commit_of_the_other_path_is_waited_for(
    storage: SharedStorage, objects: HeldObjects, partition: PartitionId
) -> None:
    """A commit on the object path takes effect after inline commits that came before it."""
    topic = make_topic("inline", 1)
    await storage.create_topics([topic])
    inline = storage.commit([append(PartitionId(topic.id, 0), b"0")])
    by_object = storage.commit([append(partition, b"1")])
    await objects.until(1)
    objects.held[0].set_result(None)
    done, _ = await asyncio.wait([inline, by_object], return_when=asyncio.FIRST_COMPLETED)
    assert inline in done
    assert (await by_object)[0].base_offset == 0


async def test_closing_fails_what_is_in_flight(
    storage: SharedStorage,
    objects: HeldObjects,
    partition: PartitionId,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("posthouse.storage.shared.engine._CLOSE_SECONDS", 0.05)
    commits = await in_groups(storage, objects, partition, [b"1", b"2"])
    await storage.close()
    for each in commits:
        with pytest.raises(PosthouseError, match="closed"):
            await each
