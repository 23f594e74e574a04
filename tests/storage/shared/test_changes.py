"""Changes of definitions, noted for the other brokers in the order in which they count."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import NamedTuple
from uuid import UUID

import pytest

from posthouse.model.errors import TopicExists
from posthouse.storage.operations import Append, Put
from posthouse.storage.outcomes import OperationRefused
from posthouse.storage.shared.database import Database, DatabaseConnection
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.shared.housekeeping.housekeeping_metrics import HousekeepingMetrics
from posthouse.storage.shared.housekeeping.removal import Removal
from posthouse.storage.shared.logs.loading import topic_uuid
from posthouse.storage.spaces import CLUSTER_WIDE, Space
from tests.storage.batches import append, make_topic
from tests.storage.shared.test_commits_of_members import numbered


class Changes(NamedTuple):
    last: int
    is_complete: bool
    topics: set[UUID]
    spaces: set[int]


@pytest.fixture
async def direct(database: Database) -> AsyncIterator[DatabaseConnection]:
    connection = await database.connect("tests")
    yield connection
    await connection.close()


async def changes(connection: DatabaseConnection, since: int) -> Changes:
    found = await connection.execute("SELECT * FROM read_changes(%s)", [since])
    [(last, is_complete, topics, spaces)] = await found.fetchall()
    assert len(set(topics)) == len(topics) and len(set(spaces)) == len(spaces)
    return Changes(last, is_complete, set(topics), set(spaces))


async def test_topics_that_are_created_changed_and_deleted(
    shared: SharedStorage, direct: DatabaseConnection
) -> None:
    assert await changes(direct, 0) == (0, True, set(), set())
    one, two = make_topic("one"), make_topic("two")
    ids = [topic_uuid(topic.id) for topic in (one, two)]
    await shared.create_topics([one, two], [Put(Space.USERS, b"key", b"value")])
    assert await changes(direct, 0) == (1, True, set(ids), {Space.USERS})
    await shared.update_topic(make_topic("one", 2, id=one.id))
    assert await changes(direct, 1) == (2, True, {ids[0]}, set())
    await shared.delete_topics([two.id])
    assert await changes(direct, 2) == (3, True, {ids[1]}, set())
    assert await changes(direct, 0) == (3, True, set(ids), {Space.USERS})
    assert await changes(direct, 3) == (3, True, set(), set())


async def test_state_that_every_broker_keeps(shared: SharedStorage, direct: DatabaseConnection) -> None:
    topic = make_topic()
    await shared.create_topics([topic])
    for space in Space:
        if space is Space.PRODUCERS:
            continue
        before = (await changes(direct, 0)).last
        # The key of an admission does not name the transactional id; that is stored with it.
        puts = [Put(each, b"." * 24, b"1") for each in {space, Space.TRANSACTIONS}]
        await shared.commit([*puts, append(topic.partition(0), b"1")])
        found = await changes(direct, before)
        assert found.spaces == ({space} if space in CLUSTER_WIDE else set()), space
        assert found.last == before + (space in CLUSTER_WIDE)
    await shared.commit([Put(Space.ACLS, b"." * 24, None), Put(Space.USERS, b"." * 24, None)])
    assert (await changes(direct, found.last)).spaces == {Space.ACLS, Space.USERS}


async def test_numbers_become_visible_in_their_order(
    shared: SharedStorage, database: Database, direct: DatabaseConnection
) -> None:
    """A change that began first counts first: a reader that has seen a number misses none below it."""
    other = await database.connect("tests")
    async with other.transaction():
        await other.execute("SELECT note_change('{}', '{1}')")
        commit = shared.commit([Put(Space.USERS, b"key", b"1")])
        await asyncio.sleep(0.1)
        assert not commit.done()
        assert (await changes(direct, 0)).last == 0
    await commit
    assert await changes(direct, 0) == (2, True, set(), {1, Space.USERS})
    await other.close()


async def test_a_reader_that_is_far_behind_reads_all_again(
    shared: SharedStorage, database: Database, direct: DatabaseConnection
) -> None:
    for number in range(3):
        await shared.commit([Put(Space.USERS, b"key", b"%d" % number)])
    await direct.execute("UPDATE change SET changed_at = changed_at - interval '2 hours' WHERE seq <= 2")
    assert shared._lease is not None
    await Removal(partial(database.connect, "tests"), shared._lease, HousekeepingMetrics()).run_once()
    found = await direct.execute("SELECT seq FROM change")
    assert await found.fetchall() == [(3,)]
    assert [(await changes(direct, since)).is_complete for since in range(5)] == [
        False,
        False,
        True,
        True,
        False,  # ahead of a database that has lost changes
    ]


async def test_a_name_that_another_broker_has_taken(shared: SharedStorage, database: Database) -> None:
    taken = make_topic("taken")
    other = await database.connect("tests")
    await other.execute("INSERT INTO topic VALUES (%s, 'taken', 1, '{}')", [topic_uuid(taken.id)])
    with pytest.raises(TopicExists, match="'taken'"):
        await shared.create_topics([make_topic("free"), make_topic("taken")])
    found = await other.execute("SELECT name, deleted_at FROM topic")
    assert await found.fetchall() == [("taken", None)]
    await shared.create_topics([make_topic("free")])
    await other.close()


async def test_a_void_commit_changes_nothing(shared: SharedStorage, direct: DatabaseConnection) -> None:
    topic = make_topic()
    await shared.create_topics([topic])
    await shared.commit([numbered(topic.partition(0), 0)])
    refused: Append = numbered(topic.partition(0), 5, required=True)
    with pytest.raises(OperationRefused):
        await shared.commit([refused, Put(Space.USERS, b"key", b"1")])
    found = await direct.execute("SELECT count(*) FROM state")
    assert await found.fetchall() == [(0,)]
