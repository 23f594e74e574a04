"""Topics and cluster-wide state that the coordinator changes are followed by members."""

import asyncio
from dataclasses import replace

import pytest

from posthouse.model.clock import ManualClock
from posthouse.model.errors import NotLeader, TopicExists, UnknownPartition, UnknownTopic
from posthouse.model.scopes import NAMESPACES
from posthouse.storage.definition_changes import DefinitionChange
from posthouse.storage.operations import Put
from posthouse.storage.outcomes import OperationRefused
from posthouse.storage.shared.database import Database
from posthouse.storage.spaces import Space
from tests.storage.batches import append, make_topic, read_all
from tests.storage.shared.faulty_objects import FaultyObjectStore
from tests.storage.shared.opened import make_member
from tests.storage.shared.several.brokers import Brokers, until


async def test_topics_are_followed(brokers: Brokers) -> None:
    a, b, _ = brokers
    changes: list[DefinitionChange] = []
    b.subscribe_definitions(changes.append)
    topic = make_topic(partitions=1)
    await a.create_topics([topic])
    await a.commit([append(topic.partition(0), b"0")])
    await until(lambda: topic.id in b.topics)
    assert b.topics[topic.id] == topic
    assert list(await read_all(b, topic.partition(0))) == [0]

    wider = replace(make_topic(partitions=2, id=topic.id, retention_ms="5000"), scope=NAMESPACES[3])
    await a.give_topics([topic], NAMESPACES[3])
    await until(lambda: b.topics[topic.id].scope == NAMESPACES[3])
    changes.pop()
    await a.update_topic(wider)
    await until(lambda: b.topics[topic.id] == wider)
    await a.commit([append(topic.partition(1), b"1")])
    await b.refresh(list(wider.partition_ids()))
    assert list(await read_all(b, topic.partition(1))) == [0]

    await a.delete_topics([topic.id])
    await until(lambda: topic.id not in b.topics)
    with pytest.raises(UnknownPartition):
        b.bounds(topic.partition(0))
    assert [(list(each.topics), list(each.deleted)) for each in changes] == [
        ([topic], []),
        ([wider], []),
        ([], [wider]),
    ]


async def test_a_read_of_a_topic_whose_deletion_is_not_known_here(
    brokers: Brokers, database: Database
) -> None:
    """Its rows are being removed, which must not look like damage."""
    a, b, _ = brokers
    topic = make_topic()
    await brokers.create(topic)
    await a.commit([append(topic.partition(0), b"x")])
    await b.refresh([topic.partition(0)])
    await b._definition_follower.stop()
    await a.delete_topics([topic.id])
    for _ in range(3):
        with pytest.raises(UnknownPartition):
            await b.read(topic.partition(0), 0, 100)
        with pytest.raises(OperationRefused, match="deleted"):
            await b.commit([append(topic.partition(0), b"y")])
        connection = await database.connect("tests")
        await connection.execute("SELECT remove_deleted_topics(holder, epoch, 1) FROM scope")
        await connection.close()


async def test_a_topic_that_was_made_again_under_its_name(brokers: Brokers) -> None:
    a, b, _ = brokers
    first, second = make_topic(), make_topic()
    await brokers.create(first)
    changes: list[DefinitionChange] = []
    b.subscribe_definitions(changes.append)
    await a.delete_topics([first.id])
    await a.create_topics([second])
    await b.refresh_definitions()
    assert list(b.topics.values()) == [second]
    assert [topic for each in changes for topic in each.deleted] == [first]
    assert [topic for each in changes for topic in each.topics] == [second]


async def test_cluster_wide_state_is_followed_as_a_whole(
    brokers: Brokers, database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    a, b, _ = brokers
    changes: list[DefinitionChange] = []
    b.subscribe_definitions(changes.append)
    await a.commit([Put(Space.USERS, b"ada", b"1"), Put(Space.OFFSETS, b"group", b"5")])
    await a.commit([Put(Space.USERS, b"bob", b"2"), Put(Space.QUOTAS, b"ada", b"3")])
    await b.refresh_definitions()
    state: dict[Space, dict[bytes, bytes]] = {}
    for change in changes:
        state |= {space: dict(values) for space, values in change.state.items()}
    assert state == {Space.USERS: {b"ada": b"1", b"bob": b"2"}, Space.QUOTAS: {b"ada": b"3"}}
    await a.commit([Put(Space.USERS, b"ada", None), Put(Space.USERS, b"bob", None)])
    await b.refresh_definitions()
    assert changes[-1].state == {Space.USERS: {}}

    later = await make_member(database, objects, clock)
    await later.open()
    assert later.take_state(Space.QUOTAS) == {b"ada": b"3"}
    assert later.take_state(Space.OFFSETS) == {}, "it is the coordinator's"
    await later.close()


async def test_a_member_that_is_far_behind_reads_all_again(brokers: Brokers, database: Database) -> None:
    a, b, _ = brokers
    old, new = make_topic("old"), make_topic("new")
    await brokers.create(old)
    changes: list[DefinitionChange] = []
    b.subscribe_definitions(changes.append)
    connection = await database.connect("tests")
    async with connection.transaction():
        # As if these changes were made and removed within one pause of the member.
        await connection.execute("UPDATE last_change SET seq = seq + 5, removed_to = seq + 5")
        await connection.execute("UPDATE topic SET deleted_at = now()")
        await connection.execute("DELETE FROM change")
    await connection.close()
    await a.create_topics([new])
    await b.refresh_definitions()
    assert list(b.topics.values()) == [new]
    assert [topic for each in changes for topic in each.deleted] == [old]
    await a.commit([append(new.partition(0), b"x")])
    await b.refresh([new.partition(0)])
    assert list(await read_all(b, new.partition(0))) == [0]


async def test_many_refreshes_are_few_queries_and_each_is_late_enough(brokers: Brokers) -> None:
    a, b, _ = brokers

    async def look_for(number: int) -> None:
        await asyncio.sleep(number * 0.01)
        topic = make_topic(f"t{number}")
        await a.create_topics([topic])
        await b.refresh_definitions()
        assert topic.id in b.topics

    before = b._following.metrics.seconds.count
    began = asyncio.get_running_loop().time()
    await asyncio.gather(*(look_for(number) for number in range(30)))
    most = (asyncio.get_running_loop().time() - began) / 0.05 + 2
    # The follower of logs does not ask: nothing is read.
    assert b._following.metrics.seconds.count - before <= most


async def test_any_broker_creates_and_deletes_topics(brokers: Brokers) -> None:
    topic = make_topic(partitions=2)
    await brokers.b.create_topics([topic])
    await brokers.a.refresh_definitions()
    assert brokers.a.topics[topic.id] == brokers.b.topics[topic.id]
    await brokers.a.commit([append(topic.partition(1), b"x")])
    namesake = make_topic(topic.name)
    for each in brokers.a, brokers.b:
        with pytest.raises(TopicExists):
            await each.create_topics([namesake])
    await brokers.b.delete_topics([topic.id])
    with pytest.raises(UnknownTopic):  # the coordinator has not heard of it yet
        await brokers.a.update_topic(topic)
    await brokers.a.refresh_definitions()
    assert topic.id not in brokers.a.topics
    await brokers.a.create_topics([namesake])


async def test_of_brokers_that_create_the_same_name_one_succeeds(brokers: Brokers) -> None:
    for number in range(10):
        made = [make_topic(f"t{number}"), make_topic(f"t{number}")]
        results = await asyncio.gather(
            brokers.a.create_topics(made[:1]), brokers.b.create_topics(made[1:]), return_exceptions=True
        )
        assert sorted(map(type, results), key=str) == [type(None), TopicExists]
        await brokers.a.refresh_definitions()
        await brokers.b.refresh_definitions()
        assert brokers.a.topics == brokers.b.topics
        assert len(brokers.a.topics) == number + 1


async def test_a_topic_whose_name_was_announced_gets_that_scope(brokers: Brokers) -> None:
    assert await brokers.a.announce_sources(["mails", "other"], NAMESPACES[3]) == []
    topic = make_topic("mails")
    await brokers.b.create_topics([topic])
    assert brokers.b.topics[topic.id].scope == NAMESPACES[3]
    with pytest.raises(OperationRefused):
        await brokers.b.commit([append(topic.partition(0), b"x")])
    await brokers.a.refresh_definitions()
    assert brokers.a.topics[topic.id].scope == NAMESPACES[3]
    await brokers.a.commit([append(topic.partition(0), b"x")])
    await brokers.a.commit([Put(Space.SOURCES, b"other", None)])
    later = make_topic("other")
    await brokers.b.create_topics([later])
    assert brokers.b.topics[later.id].scope is None
    # Announced under another scope, which counts for topics that are created from then on.
    await brokers.a.announce_sources(["third"], NAMESPACES[3])
    await brokers.a.announce_sources(["third"], NAMESPACES[15])
    third = make_topic("third", partitions=2)
    await brokers.b.create_topics([third])
    assert brokers.b.topics[third.id].scope == NAMESPACES[15]


async def test_a_topic_that_is_created_while_its_name_is_announced_is_not_overlooked(
    brokers: Brokers,
) -> None:
    """The broker that creates it sees the name, or the one that announces it sees the topic."""
    for number in range(20):
        topic = make_topic(f"t{number}")
        scopeless, _ = await asyncio.gather(
            brokers.a.announce_sources([topic.name], NAMESPACES[3]), brokers.b.create_topics([topic])
        )
        assert (brokers.b.topics[topic.id].scope is None) is (scopeless == [topic.name])


async def test_a_member_changes_neither_topics_nor_state(brokers: Brokers) -> None:
    with pytest.raises(NotLeader):
        await brokers.b.update_topic(make_topic())
    with pytest.raises(NotLeader):
        await brokers.b.announce_sources(["mails"], NAMESPACES[3])
    with pytest.raises(NotLeader):
        await brokers.b.give_topics([make_topic()], NAMESPACES[3])
    with pytest.raises(NotLeader):
        await brokers.b.update_topic(replace(make_topic(":queue"), scope=NAMESPACES[3]))
    with pytest.raises(NotLeader):
        await brokers.b.assign_scopes({})
    with pytest.raises(NotLeader):
        brokers.b.commit([Put(Space.USERS, b"ada", b"1")])
