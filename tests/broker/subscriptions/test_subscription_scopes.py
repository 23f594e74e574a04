"""Subscriptions of scopes that a broker takes and gives up."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from posthouse.broker.appending import Produced
from posthouse.broker.broker import Broker
from posthouse.broker.subscriptions.leases import Acknowledgement, LeasedRun, Verdict
from posthouse.broker.subscriptions.wishes import Taken, Wish
from posthouse.broker.topics import NewTopic
from posthouse.model.errors import NotCoordinator, PosthouseError, Unavailable
from posthouse.model.ids import GroupId, MemberId, PartitionId
from posthouse.model.scopes import scope_of_group
from posthouse.model.topics import Topic
from posthouse.records.builder import BatchBuilder
from posthouse.storage.spaces import Space
from tests.broker.members import Pair, pair, started

GROUP = GroupId("workers")
SCOPE = scope_of_group(GROUP)
ANN = MemberId("ann")


@pytest.fixture
async def brokers() -> AsyncIterator[Pair]:
    """The member holds the scope, and has a subscription with ten records."""
    async with pair() as made:
        [topic] = await made.coordinator.create_topics([NewTopic(name="t", partitions=1)])
        assert isinstance(topic, Topic)
        async with started(made.member):
            await made.scopes.take(made.member, SCOPE)
            await made.member.subscriptions.create(GROUP)
            await made.member.subscriptions.move(GROUP, {topic.partition(0): 0})
            for number in range(10):
                builder = BatchBuilder()
                builder.add(None, b"%d" % number, timestamp=made.clock.now_ms())
                await made.member.append([Produced(topic, 0, memoryview(builder.build()))]).wait()
            yield made


def partition(brokers: Pair) -> PartitionId:
    return brokers.coordinator.topic("t").partition(0)


async def fetch(broker: Broker, *, most: int = 100, seconds: float = 0.0) -> list[LeasedRun]:
    where = broker.topic("t").partition(0)
    wish = Wish(max_bytes=2**20, max_records=most, is_strict=True, seconds=seconds)
    found = (await broker.subscriptions.fetch(GROUP, ANN, [where], wish, lambda: True)).get(where)
    if isinstance(found, PosthouseError):
        raise found
    return found.runs if isinstance(found, Taken) else []


async def accept(broker: Broker, first: int, last: int) -> PosthouseError | None:
    where = broker.topic("t").partition(0)
    said = {where: [Acknowledgement(first, last, [Verdict.ACCEPT])]}
    return (await broker.subscriptions.acknowledge(GROUP, ANN, said))[where]


def offsets(runs: list[LeasedRun]) -> list[int]:
    return [offset for run in runs for offset in range(run.first, run.last + 1)]


async def test_progress_moves_with_the_scope_and_leases_do_not(brokers: Pair) -> None:
    assert offsets(await fetch(brokers.member, most=6)) == list(range(6))
    assert await accept(brokers.member, 0, 1) is None
    assert await accept(brokers.member, 4, 4) is None
    await brokers.scopes.move(SCOPE, brokers.coordinator)
    assert GROUP not in brokers.member.subscriptions and GROUP in brokers.coordinator.subscriptions
    with pytest.raises(NotCoordinator):
        await fetch(brokers.member)
    with pytest.raises(NotCoordinator):
        await accept(brokers.member, 2, 2)
    found = await fetch(brokers.coordinator)
    assert offsets(found) == [2, 3, 5, 6, 7, 8, 9]
    await brokers.scopes.move(SCOPE, brokers.member)
    assert offsets(await fetch(brokers.member)) == [2, 3, 5, 6, 7, 8, 9]


async def test_a_fetch_that_waits_ends(brokers: Pair) -> None:
    await fetch(brokers.member)
    waiting = asyncio.create_task(fetch(brokers.member, seconds=3600))
    await asyncio.sleep(0.01)
    await asyncio.wait_for(brokers.scopes.move(SCOPE, brokers.coordinator), 30)
    assert await waiting == []


async def test_an_acknowledgement_in_flight_is_stored_first(brokers: Pair) -> None:
    await fetch(brokers.member)
    brokers.member_storage.may_commit.clear()
    accepting = asyncio.create_task(accept(brokers.member, 0, 8))
    await asyncio.sleep(0)
    moving = asyncio.create_task(brokers.scopes.move(SCOPE, brokers.coordinator))
    await asyncio.sleep(0.01)
    assert not moving.done()
    brokers.member_storage.may_commit.set()
    assert await accepting is None
    await asyncio.wait_for(moving, 30)
    assert offsets(await fetch(brokers.coordinator)) == [9]


async def test_a_partition_that_is_being_opened_is_opened_first(brokers: Pair) -> None:
    """Its caller may be gone. If it was stored later, the progress of the other broker would be lost."""
    [topic] = await brokers.coordinator.create_topics([NewTopic(name="u", partitions=1)])
    assert isinstance(topic, Topic)
    await brokers.member_storage.refresh_definitions()
    brokers.member_storage.may_commit.clear()
    brokers.member.subscriptions.open(GROUP, [topic.partition(0)])
    await asyncio.sleep(0.01)
    moving = asyncio.create_task(brokers.scopes.move(SCOPE, brokers.coordinator))
    await asyncio.sleep(0.01)
    assert not moving.done()
    brokers.member_storage.may_commit.set()
    await asyncio.wait_for(moving, 30)
    assert set(brokers.coordinator.subscriptions.progress(GROUP)) == {partition(brokers), topic.partition(0)}


async def test_a_failed_commit_is_not_tried_again_after_the_scope_was_given_up(
    brokers: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fetch(brokers.member)
    storage = brokers.member_storage
    await brokers.scopes.move(SCOPE, brokers.coordinator)
    assert offsets(await fetch(brokers.coordinator)) == list(range(10))
    assert await accept(brokers.coordinator, 0, 9) is None
    before = dict(brokers.storage._state[Space.SHARE_PROGRESS])

    def refuse(operations: Any) -> Any:
        raise AssertionError("the progress belongs to another broker")

    monkeypatch.setattr(storage, "_commit", refuse)
    brokers.clock.advance(3600)
    await brokers.member.subscriptions.tick()
    await asyncio.sleep(0.05)
    assert brokers.storage._state[Space.SHARE_PROGRESS] == before


async def test_a_late_failure_of_a_commit_changes_nothing(brokers: Pair) -> None:
    """The progress of a lane was on its way when the scope was given up, and the storage has refused it."""
    member = brokers.member
    [subscribed] = member.subscriptions.progress(GROUP).values()
    settling = member.subscriptions._partitions._progress_writer
    failed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    failed.set_exception(Unavailable("the database is away"))
    await brokers.scopes.move(SCOPE, brokers.coordinator)
    settling._stored([subscribed], failed)
    settling.changed(subscribed)
    assert not settling._changed


async def test_the_broker_that_stops_stores_the_progress(brokers: Pair) -> None:
    await fetch(brokers.member, most=3)
    await accept(brokers.member, 0, 0)
    await brokers.member.stop()
    del brokers.scopes.holders[SCOPE]
    await brokers.scopes.take(brokers.coordinator, SCOPE)
    assert offsets(await fetch(brokers.coordinator)) == list(range(1, 10))


async def test_progress_in_deleted_topics_is_removed_by_the_holder(brokers: Pair) -> None:
    await brokers.coordinator.delete_topics([brokers.coordinator.topic("t")])
    brokers.member_storage.follow()
    async with asyncio.timeout(30):
        while brokers.storage._state[Space.SHARE_PROGRESS]:
            await asyncio.sleep(0.01)


async def test_leftovers_of_deleted_topics(brokers: Pair) -> None:
    await brokers.member.release_scope(SCOPE)
    await brokers.coordinator.delete_topics([brokers.coordinator.topic("t")])
    await brokers.member.take_scope(SCOPE)
    assert len(brokers.storage._state[Space.SHARE_GROUPS]) == 1
    assert brokers.member.subscriptions.progress(GROUP) == {}


async def test_queues_ask_storage_which_groups_read_a_topic(brokers: Pair) -> None:
    topics = [brokers.coordinator.topic("t")]
    is_read = await brokers.coordinator._readers_of(topics)
    assert is_read(partition(brokers))
    await brokers.member.subscriptions.delete(GROUP)
    is_read = await brokers.coordinator._readers_of(topics)
    assert not is_read(partition(brokers))
