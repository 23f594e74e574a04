"""Creating and deleting topics when the answer of the database is lost, and beside commits."""

import asyncio
from typing import Any

import pytest

from posthouse.model.clock import ManualClock
from posthouse.model.errors import TopicExists, UnknownPartition
from posthouse.storage.definition_changes import DefinitionChange
from posthouse.storage.operations import Trim
from posthouse.storage.outcomes import OperationRefused
from posthouse.storage.shared.database import Database, DatabaseAway, DatabaseConnection, LeaseLost
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.shared.logs import definitions
from tests.storage.batches import append, make_topic, read_all
from tests.storage.shared.faulty_objects import FaultyObjectStore
from tests.storage.shared.lost_answers import LostAnswers
from tests.storage.shared.members import members
from tests.storage.shared.opened import take_lease
from tests.storage.shared.several.brokers import until


@pytest.fixture
def lost(database: Database, monkeypatch: pytest.MonkeyPatch) -> LostAnswers:
    monkeypatch.setattr(definitions, "_PAUSES", (0.0, 0.0, 0.0))
    return LostAnswers(database)


async def test_a_creation_whose_answer_is_lost_is_repeated(shared: SharedStorage, lost: LostAnswers) -> None:
    topic = make_topic(partitions=2)
    lost.count = 2
    await shared.create_topics([topic])
    assert lost.count == 0
    for partition in topic.partition_ids():
        await shared.commit([append(partition, b"1")])
        assert await read_all(shared, partition) == {0: b"1"}


async def test_a_topic_of_an_unknown_creation_becomes_known(shared: SharedStorage, lost: LostAnswers) -> None:
    changes: list[DefinitionChange] = []
    shared.subscribe_definitions(changes.append)
    topic = make_topic("orders", partitions=2)
    lost.count = 4
    with pytest.raises(DatabaseAway):
        await shared.create_topics([topic])
    assert topic.id not in shared.topics
    await until(lambda: topic.id in shared.topics)
    assert changes == [DefinitionChange(topics=[topic], deleted=[])]
    for partition in topic.partition_ids():
        await shared.commit([append(partition, b"1")])
        assert await read_all(shared, partition) == {0: b"1"}
    with pytest.raises(TopicExists):
        await shared.create_topics([make_topic("orders")])
    await shared.delete_topics([topic.id])


async def test_a_topic_of_an_unknown_creation_stays_if_another_broker_has_written_to_it(
    shared: SharedStorage,
    lost: LostAnswers,
    database: Database,
    objects: FaultyObjectStore,
    clock: ManualClock,
) -> None:
    first = make_topic("orders")
    lost.count = 4
    with pytest.raises(DatabaseAway):
        await shared.create_topics([first])
    async with members(1, database, objects, clock) as [member]:
        await member.commit([append(first.partition(0), b"1")])
    with pytest.raises(TopicExists):
        await shared.create_topics([make_topic("orders")])
    connection = await database.connect("tests")
    found = await connection.execute("SELECT deleted, next FROM log")
    assert await found.fetchall() == [(False, 1)]
    await connection.close()
    await shared.refresh_definitions()
    await shared.commit([append(first.partition(0), b"2")])
    assert await read_all(shared, first.partition(0)) == {0: b"1", 1: b"2"}


async def test_a_creation_that_did_not_count(
    shared: SharedStorage, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(definitions, "_PAUSES", ())
    changes: list[DefinitionChange] = []
    shared.subscribe_definitions(changes.append)
    with monkeypatch.context() as away:
        away.setattr(database, "connect", _away)
        with pytest.raises(DatabaseAway):
            await shared.create_topics([make_topic("orders")])
        with pytest.raises(DatabaseAway):
            await shared.refresh_definitions()
    await shared.refresh_definitions()
    assert not shared.topics and not changes
    await shared.create_topics([make_topic("orders")])


async def test_a_commit_of_a_creation_that_is_still_on_its_way_is_waited_for(
    shared: SharedStorage, lost: LostAnswers
) -> None:
    topic = make_topic("orders")
    lost.count, lost.is_late = 4, True
    with pytest.raises(DatabaseAway):
        await shared.create_topics([topic])
    assert lost.late is not None
    refreshing = asyncio.create_task(shared.refresh_definitions())
    await asyncio.sleep(0.2)
    assert not refreshing.done() and topic.id not in shared.topics
    lost.arrive.set()
    await refreshing
    assert topic.id in shared.topics
    await lost.late


async def test_an_update_whose_answer_is_lost_becomes_known(shared: SharedStorage, lost: LostAnswers) -> None:
    topic = make_topic("orders")
    await shared.create_topics([topic])
    await shared.commit([append(topic.partition(0), b"1")])
    wider = make_topic("orders", partitions=2, id=topic.id, retention_ms="5000")
    lost.count = 4
    with pytest.raises(DatabaseAway):
        await shared.update_topic(wider)
    assert shared.topics[topic.id] == topic
    await shared.refresh_definitions()
    assert shared.topics[topic.id] == wider
    for partition in wider.partition_ids():
        await shared.commit([append(partition, b"2")])
    assert await read_all(shared, topic.partition(0)) == {0: b"1", 1: b"2"}


async def test_a_storage_with_topics_in_doubt_is_closed(
    shared: SharedStorage, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(definitions, "_PAUSES", ())
    monkeypatch.setattr(database, "connect", _away)
    with pytest.raises(DatabaseAway):
        await shared.create_topics([make_topic("orders")])
    await asyncio.wait_for(shared.close(), 20)
    assert "topics in doubt" not in {task.get_name() for task in asyncio.all_tasks()}


async def test_topics_in_doubt_are_left_to_the_next_holder_of_the_lease(
    shared: SharedStorage, lost: LostAnswers, database: Database
) -> None:
    topic = make_topic("orders")
    lost.count = 4
    with pytest.raises(DatabaseAway):
        await shared.create_topics([topic])
    await take_lease(database)
    with pytest.raises(LeaseLost):
        await shared.refresh_definitions()
    assert topic.id not in shared.topics


async def test_a_deletion_whose_answer_is_lost_is_repeated(shared: SharedStorage, lost: LostAnswers) -> None:
    topic = make_topic()
    await shared.create_topics([topic])
    lost.count = 2
    await shared.delete_topics([topic.id])
    assert lost.count == 0
    assert topic.id not in shared.topics


async def test_a_topic_of_an_unknown_deletion_is_not_written_to(
    shared: SharedStorage, lost: LostAnswers
) -> None:
    """What is written to a topic that the database has deleted would be lost."""
    topic, again = make_topic("orders"), make_topic("orders")
    await shared.create_topics([topic])
    changes: list[DefinitionChange] = []
    shared.subscribe_definitions(changes.append)
    lost.count = 4
    with pytest.raises(DatabaseAway):
        await shared.delete_topics([topic.id])
    assert topic.id not in shared.topics
    with pytest.raises(UnknownPartition):
        shared.commit([append(topic.partition(0), b"1")])
    await until(lambda: bool(changes))
    assert changes == [DefinitionChange(topics=[], deleted=[topic])]
    await shared.create_topics([again])
    await shared.commit([append(again.partition(0), b"1")])


async def test_a_topic_of_a_deletion_that_did_not_count_is_served_again(
    shared: SharedStorage,
    database: Database,
    objects: FaultyObjectStore,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Members have served it all the time, and nothing that they have acknowledged is lost."""
    monkeypatch.setattr(definitions, "_PAUSES", ())
    topic, again = make_topic("orders"), make_topic("orders")
    await shared.create_topics([topic])
    await shared.commit([append(topic.partition(0), b"1")])
    changes: list[DefinitionChange] = []
    shared.subscribe_definitions(changes.append)
    with monkeypatch.context() as away:
        away.setattr(database, "connect", _away)
        with pytest.raises(DatabaseAway):
            await shared.delete_topics([topic.id])
    assert topic.id not in shared.topics
    async with members(1, database, objects, clock) as [member]:
        await member.commit([append(topic.partition(0), b"2")])
    await until(lambda: topic.id in shared.topics)
    assert changes == [DefinitionChange(topics=[topic], deleted=[])]
    with pytest.raises(TopicExists):
        await shared.create_topics([again])
    await shared.commit([append(topic.partition(0), b"3")])
    assert await read_all(shared, topic.partition(0)) == {0: b"1", 1: b"2", 2: b"3"}
    await shared.delete_topics([topic.id])
    await shared.create_topics([again])


async def _away(purpose: str, **options: Any) -> DatabaseConnection:
    raise DatabaseAway("injected")


async def test_commits_to_a_topic_that_is_deleted_meanwhile_harm_no_others(
    shared: SharedStorage, database: Database
) -> None:
    """They wait behind a call that takes long; when their turn comes, the broker knows the topic no more."""
    gone, other = make_topic("gone"), make_topic("other")
    await shared.create_topics([gone, other])
    partition = gone.partition(0)
    await shared.commit([append(partition, b"1")])
    assert shared._definitions is not None
    deletion = shared._definitions.delete([gone.id])  # as after the barrier of `delete_topics`
    holding = await database.connect("tests")
    async with holding.transaction():
        await holding.execute("SELECT FROM committer FOR UPDATE")
        busy = shared.commit([append(other.partition(0), b"busy")])
        await asyncio.sleep(0.05)
        trimmed, refused = shared.commit([Trim(partition, 1)]), shared.commit([append(partition, b"2")])
        innocent = shared.commit([append(other.partition(0), b"innocent")])
        await deletion
    await asyncio.wait_for(asyncio.gather(busy, innocent, trimmed), 10)
    with pytest.raises(OperationRefused) as refusal:
        await refused
    assert isinstance(refusal.value.reason, UnknownPartition)
    await shared.commit([append(other.partition(0), b"after")])
    assert list((await read_all(shared, other.partition(0))).values()) == [b"busy", b"innocent", b"after"]
    await holding.close()
