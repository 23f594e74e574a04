"""Two storages that serve, and of which one after the other serves a scope of namespaces."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from posthouse.broker.routing.encoding import exchange_key
from posthouse.model.clock import ManualClock
from posthouse.model.errors import NotLeader, Unavailable
from posthouse.model.ids import TopicId
from posthouse.model.scopes import COORDINATOR, NAMESPACES, Scope, scope_of_namespace
from posthouse.model.topics import Topic
from posthouse.storage.operations import Put, Refer, Run, Trim
from posthouse.storage.outcomes import OperationRefused
from posthouse.storage.shared.database import Database, DatabaseAway, ScopeNeeded
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.shared.logs import definitions
from posthouse.storage.shared.objects.memory import MemoryObjectStore
from posthouse.storage.spaces import Space
from tests.storage.batches import append, make_topic, read_all
from tests.storage.shared.lost_answers import LostAnswers
from tests.storage.shared.opened import TestLease, make_member, serve, take_lease
from tests.storage.shared.several.brokers import until

SCOPE = scope_of_namespace("shop")
ELSEWHERE = next(each for each in NAMESPACES if each != SCOPE)
EXCHANGE = exchange_key("shop", "events")


class Two:
    """The first one is the coordinator."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.storages: list[SharedStorage] = []
        self.leases: list[TestLease] = []

    async def give(self, number: int, scope: Scope = SCOPE) -> None:
        """The database gives the scope to this storage."""
        for each in self.leases:
            each.scopes.discard(scope)
        self.leases[number].scopes.add(scope)
        async with await self.database.connect("tests") as connection:
            await connection.execute(
                "UPDATE scope SET holder = %s, epoch = epoch + 1 WHERE name = %s",
                [self.leases[number].incarnation, scope.name],
            )

    async def scopes(self, topic: TopicId) -> set[tuple[int | None, int | None]]:
        """Of the topic and its logs, as the database has them."""
        async with await self.database.connect("tests") as connection:
            found = await connection.execute(
                "SELECT topic.namespaces, log.namespaces FROM topic JOIN log ON log.topic = topic.id "
                "WHERE topic.id = %s",
                [topic.hex()],
            )
            return set(await found.fetchall())


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


async def test_a_namespace_moves_there_and_back(two: Two) -> None:
    topics: list[Topic] = []
    queue = replace(make_topic(":queue"), scope=SCOPE)
    await two.storages[0].create_topics([queue])
    for written in range(4):
        number = written % 2
        now, other = two.storages[number], two.storages[1 - number]
        await two.give(number)
        # Nothing is followed in the background.
        await now._definition_follower.stop()
        await now._follower.stop()
        await now.take_namespaces(SCOPE)
        assert {topic.id for topic in now.topics.values()} == {queue.id, *(topic.id for topic in topics)}
        assert all(topic.scope == SCOPE for topic in now.topics.values())
        ends = [now.bounds(topic.partition(0)).end for topic in [*topics, queue]]
        assert ends == [*range(written, 0, -1), written], "what the other one has written is known"

        topic = make_topic(f"by-{number}-{written}")
        assert await now.announce_sources([topic.name], SCOPE) == []
        await other.create_topics([topic])
        await now.refresh_definitions()
        assert now.topics[topic.id].scope == SCOPE
        topics.append(topic)
        definition = Put(Space.EXCHANGES, EXCHANGE, b"%d" % written)
        await now.commit([definition])
        [refused] = await now.commit([replace(append(topic.partition(0), b"early"), required=False)])
        assert isinstance(refused.refusal, NotLeader), "it is not served yet"

        now.serve_namespaces(SCOPE)
        record = append(topic.partition(0), b"x")
        refer = Refer(queue.partition(0), [Run(topic.partition(0), 0, 1, 1, append=record)])
        done = await now.commit([record, refer, *(append(each.partition(0), b"x") for each in topics[:-1])])
        assert all(each.refusal is None for each in done)
        with pytest.raises(ScopeNeeded):
            other.commit([definition])
        await other.refresh_definitions()
        with pytest.raises(OperationRefused) as void:
            await other.commit([append(topic.partition(0), b"x")])
        assert isinstance(void.value.reason, NotLeader)
        now.leave_namespaces(SCOPE)
    shared = two.storages[0].shared_state
    assert await shared.of_namespaces(NAMESPACES.index(SCOPE)) == {
        Space.EXCHANGES: {EXCHANGE: b"3"},
        Space.BINDINGS: {},
        Space.QUEUES: {},
    }
    assert not any((await shared.of_namespaces(NAMESPACES.index(ELSEWHERE))).values())


async def test_what_is_left_is_refused_at_once(two: Two) -> None:
    """The database still has it as the holder."""
    first, _ = two.storages
    await two.give(0)
    await serve(first, SCOPE)
    source, queue = (replace(make_topic(name), scope=SCOPE) for name in ("source", ":queue"))
    plain = make_topic("plain")
    await first.create_topics([source, queue, plain])
    partition = source.partition(0)
    before = first.commit([append(partition, b"before")])
    first.leave_namespaces(SCOPE)
    after = first.commit([replace(append(partition, b"after"), required=False), Trim(partition, 1)])
    with pytest.raises(ScopeNeeded):
        first.commit([Put(Space.EXCHANGES, EXCHANGE, b"1")])
    with pytest.raises(ScopeNeeded):
        first.commit([Trim(partition, 1, SCOPE)])
    for refused in (
        first.announce_sources(["mails"], SCOPE),
        first.give_topics([plain], SCOPE),
        first.update_topic(replace(queue, partitions=2)),
    ):
        with pytest.raises(NotLeader):
            await refused
    await first.barrier()
    assert before.done() and after.done(), "the barrier is behind both"
    assert (await before)[0].base_offset == 0
    assert [type(each.refusal) for each in await after] == [NotLeader, NotLeader]
    assert list(await read_all(first, partition)) == [0]
    with pytest.raises(ScopeNeeded, match="references are written by the holder"):
        await first.commit([Refer(queue.partition(0), [Run(partition, 0, 1, 1)])])
    await first.commit([append(plain.partition(0), b"x")])


async def test_each_of_two_scopes_is_served_on_its_own(two: Two) -> None:
    first, second = two.storages
    await two.give(0)
    await two.give(1, ELSEWHERE)
    await serve(first, SCOPE)
    await serve(second, ELSEWHERE)
    here, there = replace(make_topic("here"), scope=SCOPE), replace(make_topic("there"), scope=ELSEWHERE)
    await second.create_topics([here, there])
    await first.refresh_definitions()
    for storage, own, others in ((first, here, there), (second, there, here)):
        assert (await storage.commit([append(own.partition(0), b"x")]))[0].base_offset == 0
        with pytest.raises(OperationRefused):
            await storage.commit([append(others.partition(0), b"x")])
    # A broker takes another scope, and keeps the first one when that is gone.
    await two.give(0, ELSEWHERE)
    second.leave_namespaces(ELSEWHERE)
    await serve(first, ELSEWHERE)
    await first.commit([append(here.partition(0), b"x"), append(there.partition(0), b"x")])
    first.leave_namespaces(ELSEWHERE)
    await first.commit([append(here.partition(0), b"x")])
    with pytest.raises(OperationRefused):
        await first.commit([append(there.partition(0), b"x")])


async def test_internal_topics_are_changed_by_the_holder_and_others_by_the_coordinator(two: Two) -> None:
    first, second = two.storages
    await two.give(1)
    await serve(second, SCOPE)
    source, queue = (replace(make_topic(name), scope=SCOPE) for name in ("source", ":queue"))
    await second.create_topics([source, queue])
    await first.refresh_definitions()
    with pytest.raises(NotLeader):
        await first.update_topic(replace(queue, partitions=2))
    with pytest.raises(NotLeader):
        await second.update_topic(replace(source, partitions=2))
    await second.update_topic(replace(queue, partitions=2))
    await first.update_topic(replace(source, partitions=2))
    for each in two.storages:
        await each.refresh_definitions()
        assert each.topics[queue.id] == replace(queue, partitions=2)
        assert each.topics[source.id] == replace(source, partitions=2)
    await second.commit([append(each.partition(1), b"x") for each in (source, queue)])


async def test_a_topic_gets_its_scope_while_the_coordinator_adds_partitions(two: Two) -> None:
    """Whichever comes first, all partitions have it, and both brokers know both."""
    first, second = two.storages
    await two.give(1)
    await serve(second, SCOPE)
    shard = NAMESPACES.index(SCOPE)
    for number in range(20):
        topic = make_topic(f"t{number}", partitions=1)
        await first.create_topics([topic])
        await second.refresh_definitions()
        wider = replace(topic, partitions=4)
        await asyncio.gather(second.give_topics([topic], SCOPE), first.update_topic(wider))
        assert await two.scopes(topic.id) == {(shard, shard)}
        for each in two.storages:
            await each.refresh_definitions()
            assert each.topics[topic.id] == replace(wider, scope=SCOPE)
        outcomes = await second.commit([append(each, b"x") for each in wider.partition_ids()])
        assert [each.base_offset for each in outcomes] == [0] * 4
        for partition in wider.partition_ids():
            with pytest.raises(OperationRefused):
                await first.commit([append(partition, b"x")])


async def test_a_topic_is_deleted_while_it_gets_its_scope(two: Two) -> None:
    first, second = two.storages
    await two.give(1)
    await serve(second, SCOPE)
    for number in range(20):
        topic = make_topic(f"t{number}", partitions=2)
        await first.create_topics([topic])
        await second.refresh_definitions()
        await asyncio.gather(second.give_topics([topic], SCOPE), first.delete_topics([topic.id]))
        for each in two.storages:
            await each.refresh_definitions()
            assert topic.id not in each.topics


@pytest.fixture
def lost(database: Database, monkeypatch: pytest.MonkeyPatch) -> LostAnswers:
    monkeypatch.setattr(definitions, "_PAUSES", (0.0, 0.0, 0.0))
    return LostAnswers(database)


async def test_a_gift_whose_answer_is_lost_is_repeated(two: Two, lost: LostAnswers) -> None:
    first, second = two.storages
    await two.give(1)
    await serve(second, SCOPE)
    topic = make_topic()
    await second.create_topics([topic])
    lost.count = 2
    await second.give_topics([topic], SCOPE)
    assert lost.count == 0
    assert second.topics[topic.id].scope == SCOPE
    await first.refresh_definitions()
    assert first.topics[topic.id].scope == SCOPE


async def test_a_gift_of_unknown_outcome_becomes_known(two: Two, lost: LostAnswers) -> None:
    _, second = two.storages
    await two.give(1)
    await serve(second, SCOPE)
    topic = make_topic()
    await second.create_topics([topic])
    await second.commit([append(topic.partition(0), b"1")])
    lost.count = 4
    with pytest.raises(DatabaseAway):
        await second.give_topics([topic], SCOPE)
    assert second.topics[topic.id].scope is None
    await until(lambda: second.topics[topic.id].scope == SCOPE)
    await second.commit([append(topic.partition(0), b"2")])
    assert await read_all(second, topic.partition(0)) == {0: b"1", 1: b"2"}


async def test_a_gift_that_did_not_count(two: Two, lost: LostAnswers) -> None:
    first, second = two.storages
    await two.give(1)
    await serve(second, SCOPE)
    topic = make_topic()
    await second.create_topics([topic])
    lost.is_silent = True
    with pytest.raises(DatabaseAway):
        await second.give_topics([topic], SCOPE)
    lost.is_silent = False
    await second.refresh_definitions()
    assert second.topics[topic.id].scope is None
    await first.refresh_definitions()
    await first.commit([append(topic.partition(0), b"1")])


async def test_a_broker_that_lost_the_scope_unnoticed_gives_no_topics(two: Two) -> None:
    first, second = two.storages
    await two.give(1)
    await serve(second, SCOPE)
    topic = make_topic()
    await second.create_topics([topic])
    await two.give(0)
    two.leases[1].scopes.add(SCOPE)
    with pytest.raises(Unavailable, match="does not hold the scope"):
        await second.give_topics([topic], SCOPE)
    assert await two.scopes(topic.id) == {(None, None)}
    await first.refresh_definitions()
    assert first.topics[topic.id].scope is None
