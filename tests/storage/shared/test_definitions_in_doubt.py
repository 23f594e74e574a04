"""Creating and deleting topics when the answer of the database is lost, and beside commits."""

import asyncio
from types import TracebackType
from typing import Any

import psycopg
import pytest

from posthouse.model.clock import ManualClock
from posthouse.model.errors import TopicExists, UnknownPartition
from posthouse.storage.operations import Trim
from posthouse.storage.outcomes import OperationRefused
from posthouse.storage.shared.database import Database, DatabaseAway, DatabaseConnection
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.shared.logs import definitions
from posthouse.storage.shared.logs.loading import topic_uuid
from tests.storage.batches import append, make_topic, read_all
from tests.storage.shared.faulty_objects import FaultyObjectStore
from tests.storage.shared.members import members


class LostAnswers:
    """Transactions that change topics count, but the answers of the next `count` are lost."""

    def __init__(self, database: Database) -> None:
        self._connect = database.connect
        self.count = 0
        database.connect = self.connect  # type: ignore[method-assign]

    async def connect(self, purpose: str, **options: Any) -> DatabaseConnection:
        connection = await self._connect(purpose, **options)
        if purpose == "topics" and self.count > 0:
            self.count -= 1
            begin = connection.transaction
            connection.transaction = lambda: _BrokenAtTheEnd(begin())  # type: ignore[method-assign,assignment,misc]
        return connection


class _BrokenAtTheEnd:
    def __init__(self, transaction: Any) -> None:
        self._transaction = transaction

    async def __aenter__(self) -> None:
        await self._transaction.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transaction.__aexit__(kind, error, trace)
        raise psycopg.OperationalError("the server closed the connection")


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


async def test_a_topic_of_an_unknown_creation_does_not_take_up_its_name(
    shared: SharedStorage, lost: LostAnswers
) -> None:
    first, second = make_topic("orders"), make_topic("orders")
    lost.count = 4
    with pytest.raises(DatabaseAway):
        await shared.create_topics([first])
    assert first.id not in shared.topics
    await shared.create_topics([second])
    await shared.commit([append(second.partition(0), b"1")])
    with pytest.raises(UnknownPartition):
        shared.commit([append(first.partition(0), b"1")])


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
    lost.count = 4
    with pytest.raises(DatabaseAway):
        await shared.delete_topics([topic.id])
    assert topic.id not in shared.topics
    with pytest.raises(UnknownPartition):
        shared.commit([append(topic.partition(0), b"1")])
    await shared.create_topics([again])
    await shared.commit([append(again.partition(0), b"1")])


async def test_a_topic_of_a_failed_deletion_does_not_take_up_its_name(
    shared: SharedStorage, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deletion did not count, but this broker cannot know that."""
    monkeypatch.setattr(definitions, "_PAUSES", ())
    topic, again = make_topic("orders"), make_topic("orders")
    await shared.create_topics([topic])
    await shared.commit([append(topic.partition(0), b"1")])
    with monkeypatch.context() as away:
        away.setattr(database, "connect", _away)
        with pytest.raises(DatabaseAway):
            await shared.delete_topics([topic.id])
    assert topic.id not in shared.topics
    await shared.create_topics([again])
    connection = await database.connect("tests")
    found = await connection.execute("SELECT id FROM topic WHERE deleted_at IS NULL")
    assert await found.fetchall() == [(topic_uuid(again.id),)]
    await connection.close()


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
