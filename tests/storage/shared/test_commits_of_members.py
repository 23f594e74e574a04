"""Commits of brokers that are not the coordinator: appends to any log, beside it and each other."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import psycopg
import pytest

from posthouse.model.clock import ManualClock
from posthouse.model.errors import NotLeader, OutOfOrderSequence, StorageFenced, Unavailable, UnknownPartition
from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.scopes import COORDINATOR, GROUPS, NAMESPACES, Scope
from posthouse.model.topics import Topic
from posthouse.records.batch import parse_header
from posthouse.records.builder import BatchBuilder
from posthouse.records.control import build_marker
from posthouse.storage.operations import Append, Operation, Put, Refer, Run, Trim
from posthouse.storage.outcomes import OperationRefused
from posthouse.storage.shared.commits import committer
from posthouse.storage.shared.database import CommitsLost, Database, ScopeNeeded
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.shared.housekeeping.housekeeping_metrics import HousekeepingMetrics
from posthouse.storage.shared.housekeeping.removal import Removal
from posthouse.storage.spaces import Space
from tests.storage.batches import append, make_topic, read_all
from tests.storage.shared.faulty_objects import Fault, FaultyObjectStore
from tests.storage.shared.members import Member, members
from tests.storage.shared.opened import make_shared, take_lease

SCOPE = NAMESPACES[3]


def numbered(
    partition: PartitionId,
    sequence: int,
    *,
    producer_id: int = 7,
    epoch: int = 0,
    required: bool = False,
    transactional: bool = False,
) -> Append:
    """The value is the producer and the sequence."""
    builder = BatchBuilder(
        producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
    )
    builder.add(None, b"%d:%d" % (producer_id, sequence), (), 1000)
    batch = memoryview(builder.build())
    return Append(partition, batch, parse_header(batch), required=required)


async def values(
    database: Database, objects: FaultyObjectStore, clock: ManualClock, partition: PartitionId
) -> list[bytes | None]:
    """As a broker reads them that has just loaded everything."""
    storage = await make_shared(database, objects, clock)
    await storage.open()
    try:
        found = await read_all(storage, partition)
        assert list(found) == list(range(len(found)))
        return list(found.values())
    finally:
        await storage.close()


async def removed(shared: SharedStorage, database: Database) -> None:
    """The rows of deleted topics."""
    connect = partial(database.connect, "tests")
    await Removal(connect, shared._lease, HousekeepingMetrics()).run_once()


async def test_brokers_append_to_one_log(
    shared: SharedStorage, database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    topic = make_topic()
    await shared.create_topics([topic])
    partition = topic.partition(0)
    async with members(2, database, objects, clock) as [one, other]:
        offsets = []
        for number in range(10):
            [outcome] = await (one, other)[number % 2].commit([append(partition, b"%d" % number)])
            offsets.append(outcome.base_offset)
    assert offsets == list(range(10))
    expected = [b"%d" % number for number in range(10)]
    assert await values(database, objects, clock, partition) == expected


async def test_a_producer_goes_on_at_another_broker(
    shared: SharedStorage, database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    topic = make_topic()
    await shared.create_topics([topic])
    partition = topic.partition(0)
    async with members(2, database, objects, clock) as [one, other]:
        assert (await one.commit([numbered(partition, 0)]))[0].base_offset == 0
        assert (await other.commit([numbered(partition, 1)]))[0].base_offset == 1
        [repeated] = await one.commit([numbered(partition, 1)])
        assert (repeated.base_offset, repeated.refusal) == (1, None)
        [refused] = await one.commit([numbered(partition, 5)])
        assert isinstance(refused.refusal, OutOfOrderSequence)
        assert (await one.commit([numbered(partition, 2)]))[0].base_offset == 2


async def test_after_a_failed_first_batch_the_log_decides_whether_it_was_repeated(
    shared: SharedStorage, database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    topic = make_topic(latency="object")
    await shared.create_topics([topic])
    partition = topic.partition(0)
    async with members(2, database, objects, clock) as [one, other]:
        objects.fail(Fault.FAIL, "put")
        with pytest.raises(Unavailable):
            await one.commit([numbered(partition, 0)])
        [refused] = await one.commit([numbered(partition, 1)])
        assert isinstance(refused.refusal, OutOfOrderSequence)
        assert "sequence 1 instead of 0" in str(refused.refusal)
        # Repeated at another broker, of which the first one has heard nothing.
        assert (await other.commit([numbered(partition, 0)]))[0].base_offset == 0
        [outcome] = await one.commit([numbered(partition, 1)])
        assert (outcome.base_offset, outcome.refusal) == (1, None)
        # A pipeline that begins with the failed batch is taken as a whole.
        objects.fail(Fault.FAIL, "put")
        second = make_topic("second", latency="object")
        await shared.create_topics([second])
        await one.reload()
        with pytest.raises(Unavailable):
            await one.commit([numbered(second.partition(0), 0)])
        outcomes = await asyncio.gather(*(one.commit([numbered(second.partition(0), n)]) for n in range(3)))
        assert [outcome.base_offset for [outcome] in outcomes] == [0, 1, 2]


async def test_a_failed_first_batch_is_not_awaited_for_ever(
    shared: SharedStorage, database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    """It was repeated at another broker, and the log has forgotten its producer since."""
    topic = make_topic(latency="object")
    await shared.create_topics([topic])
    partition = topic.partition(0)
    async with members(1, database, objects, clock) as [member]:
        objects.fail(Fault.FAIL, "put")
        with pytest.raises(Unavailable):
            await member.commit([numbered(partition, 0)])
        clock.advance(601)
        [outcome] = await member.commit([numbered(partition, 5)])
        assert (outcome.base_offset, outcome.refusal) == (0, None)


async def test_a_failed_first_batch_of_a_new_epoch_is_awaited(
    shared: SharedStorage, database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    """It takes the place of one that failed in the epoch before."""
    topic = make_topic(latency="object")
    await shared.create_topics([topic])
    partition = topic.partition(0)
    async with members(1, database, objects, clock) as [member]:
        objects.fail(Fault.FAIL, "put")
        with pytest.raises(Unavailable):
            await member.commit([numbered(partition, 3)])
        objects.fail(Fault.FAIL, "put")
        with pytest.raises(Unavailable):
            await member.commit([numbered(partition, 0, epoch=1)])
        [refused] = await member.commit([numbered(partition, 1, epoch=1)])
        assert "sequence 1 instead of 0" in str(refused.refusal)
        assert (await member.commit([numbered(partition, 0, epoch=1)]))[0].base_offset == 0


async def test_an_earlier_batch_than_the_one_that_failed_is_taken(
    shared: SharedStorage, database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    """The earlier one had failed at another broker."""
    topic = make_topic(latency="object")
    await shared.create_topics([topic])
    partition = topic.partition(0)
    async with members(1, database, objects, clock) as [member]:
        for sequence in (2, 1):
            objects.fail(Fault.FAIL, "put")
            with pytest.raises(Unavailable):
                await member.commit([numbered(partition, sequence)])
        [refused] = await member.commit([numbered(partition, 2)])
        assert "sequence 2 instead of 1" in str(refused.refusal)
        outcomes = await asyncio.gather(*(member.commit([numbered(partition, n)]) for n in range(3)))
        assert [outcome.base_offset for [outcome] in outcomes] == [0, 1, 2]


async def test_a_batch_does_not_overtake_one_that_was_left_to_another_broker(
    shared: SharedStorage, database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    """The broker gets the scope of the log between the first and the second batch of a pipeline."""
    topic = make_topic()
    await shared.create_topics([topic])
    await shared.give_topics([topic], SCOPE)
    partition = topic.partition(0)
    member = Member(database, objects, clock, await take_lease(database, scopes=[SCOPE]))
    await member.open()
    member.committer.leave_namespaces(SCOPE)
    first = member.commit([numbered(partition, 0)])
    member.committer.serve_namespaces(SCOPE)
    second = member.commit([numbered(partition, 1)])
    [refused], [overtaking] = await asyncio.gather(first, second)
    assert isinstance(refused.refusal, NotLeader)
    assert "sequence 1 instead of 0" in str(overtaking.refusal)
    outcomes = await asyncio.gather(*(member.commit([numbered(partition, n)]) for n in range(2)))
    assert [outcome.base_offset for [outcome] in outcomes] == [0, 1]
    await member.close()


async def test_a_log_of_a_namespace_refuses_appends_of_others(
    shared: SharedStorage, database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    plain, later = make_topic("plain"), make_topic("later", partitions=2)
    of_queue = replace(make_topic(":queue"), scope=SCOPE)
    await shared.create_topics([plain, later, of_queue])
    refusing = [later.partition(0), later.partition(1), of_queue.partition(0)]
    without: Sequence[Scope] = ()
    for scopes in (without, [NAMESPACES[4], *GROUPS]):
        member = Member(database, objects, clock, await take_lease(database, scopes=scopes))
        await member.open()
        if not scopes:
            assert (await member.commit([append(later.partition(1), b"before")]))[0].base_offset == 0
            await shared.give_topics([later], SCOPE)
        for partition in refusing:
            optional = append(partition, b"refused")
            optional.required = False
            refused, done = await member.commit([optional, append(plain.partition(0), b"done")])
            assert isinstance(refused.refusal, NotLeader)
            assert done.base_offset >= 0
            with pytest.raises(OperationRefused) as void:
                await member.commit([append(partition, b"refused"), append(plain.partition(0), b"void")])
            assert isinstance(void.value.reason, NotLeader)
            [trimmed] = await member.commit([Trim(partition, 1)])
            assert isinstance(trimmed.refusal, NotLeader)
        [trimmed] = await member.commit([Trim(plain.partition(0), 0)])
        assert trimmed.refusal is None
        await member.close()
    holder = Member(database, objects, clock, await take_lease(database, scopes=[SCOPE, NAMESPACES[4]]))
    await holder.open()
    outcomes = await holder.commit([append(partition, b"routed") for partition in refusing])
    assert [(each.base_offset, each.refusal) for each in outcomes] == [(0, None), (1, None), (0, None)]
    [trimmed] = await holder.commit([Trim(later.partition(1), 1)])
    assert (trimmed.log_start, trimmed.refusal) == (1, None)
    await holder.close()
    assert await values(database, objects, clock, plain.partition(0)) == [b"done"] * 6


async def test_references_are_written_by_the_holder_of_their_scope(
    shared: SharedStorage, database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    topic, queue = make_topic(), replace(make_topic(":queue"), scope=SCOPE)
    await shared.create_topics([topic, queue])
    source, target = topic.partition(0), queue.partition(0)
    holder = Member(database, objects, clock, await take_lease(database, scopes=[SCOPE]))
    other = Member(database, objects, clock, await take_lease(database, scopes=[COORDINATOR, NAMESPACES[4]]))
    for each in (holder, other):
        await each.open()
    record = append(source, b"1")
    with pytest.raises(ScopeNeeded, match="references are written by the holder"):
        await other.commit([record, Refer(target, [Run(source, 0, 1, 1, append=record)])])
    again = append(source, b"2")
    done = await holder.commit([again, Refer(target, [Run(source, 0, 1, 1, append=again)])])
    assert [each.base_offset for each in done] == [0, 0]
    assert other.fenced is None
    for each in (holder, other):
        await each.close()
    assert await values(database, objects, clock, source) == [b"2"]


async def test_a_topic_stays_in_its_scope(shared: SharedStorage, database: Database) -> None:
    topic = make_topic(partitions=1)
    await shared.create_topics([topic])
    await shared.give_topics([topic], SCOPE)
    await shared.give_topics([topic], NAMESPACES[4])
    assert shared.topics[topic.id].scope == SCOPE
    more = make_topic(partitions=3, id=topic.id)
    await shared.update_topic(more)
    assert shared.topics[topic.id] == replace(more, scope=SCOPE)
    connection = await database.connect("tests")
    found = await connection.execute(
        "SELECT topic.namespaces, min(log.namespaces), count(log.namespaces) "
        "FROM topic JOIN log ON log.topic = topic.id GROUP BY topic.id"
    )
    assert await found.fetchall() == [(3, 3, 3)]
    await connection.close()


async def test_a_log_gets_a_scope_while_another_broker_commits(
    shared: SharedStorage, database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    """What the holder has seen of the log when it has got it is all that others have written to it."""
    topics = [make_topic(f"t{number}", partitions=3) for number in range(10)]
    await shared.create_topics(topics)
    refused = 0

    async def work(member: Member, topic: Topic, given: asyncio.Event) -> None:
        nonlocal refused
        for partition in topic.partition_ids() * 20:
            was_given = given.is_set()
            [outcome] = await member.commit([replace(append(partition, b"x"), required=False)])
            assert outcome.refusal is not None or not was_given
            if outcome.refusal is not None:
                assert isinstance(outcome.refusal, NotLeader)
                refused += 1

    async def give(topic: Topic, given: asyncio.Event) -> None:
        await asyncio.sleep(0.02)
        await shared.give_topics([topic], SCOPE)
        given.set()
        await shared.refresh(topic.partition_ids())
        ends[topic.id] = [shared.bounds(each).end for each in topic.partition_ids()]

    ends: dict[TopicId, list[int]] = {}
    async with members(2, database, objects, clock) as made:
        for topic in topics:
            given = asyncio.Event()
            await asyncio.gather(*(work(each, topic, given) for each in made), give(topic, given))
    assert refused > 0
    for topic in topics:
        await shared.refresh(topic.partition_ids())
        assert [shared.bounds(each).end for each in topic.partition_ids()] == ends[topic.id]


async def test_a_deleted_log_refuses_appends_also_when_its_row_is_gone(
    shared: SharedStorage, database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    gone, stays = make_topic("gone", partitions=2), make_topic("stays")
    await shared.create_topics([gone, stays])
    async with members(1, database, objects, clock) as [member]:
        await member.commit([append(gone.partition(0), b"1")])
        await shared.delete_topics([gone.id])
        for _ in range(2):
            late = append(gone.partition(0), b"late")
            late.required = False
            refused, done = await member.commit([late, append(stays.partition(0), b"done")])
            assert isinstance(refused.refusal, UnknownPartition)
            assert done.base_offset >= 0
            await removed(shared, database)
        connection = await database.connect("tests")
        found = await connection.execute("SELECT count(*) FROM topic WHERE name = 'gone'")
        assert await found.fetchall() == [(0,)]
        await connection.close()
    assert await values(database, objects, clock, stays.partition(0)) == [b"done"] * 2


async def test_what_only_the_holder_of_a_scope_commits(
    shared: SharedStorage,
    database: Database,
    objects: FaultyObjectStore,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = make_topic(partitions=2)
    await shared.create_topics([topic])
    partition = topic.partition(0)
    marker = memoryview(build_marker(7, 0, commit=True, timestamp=5))
    forbidden: list[Operation] = [
        Put(Space.TRANSACTIONS, b"id", b"1"),
        Put(Space.USERS, b"ada", b"1"),
        Append(partition, marker, parse_header(marker)),
        numbered(partition, 0, transactional=True),
    ]
    async with members(1, database, objects, clock) as [member]:
        for each in forbidden:
            with pytest.raises(ScopeNeeded):
                await member.commit([append(partition, b"1"), each])
        # The database refuses it as well.
        monkeypatch.setattr(committer, "scopes_of", lambda operations: set())
        for each in forbidden:
            with pytest.raises(ScopeNeeded):
                await member.commit([append(partition, b"1"), each])
    assert await values(database, objects, clock, partition) == []


async def test_a_late_call_of_an_earlier_storage_of_the_same_broker_does_not_count(
    shared: SharedStorage, database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    """A broker changes its role within one process: its new storage must not take the answer for its own."""
    topic = make_topic()
    await shared.create_topics([topic])
    partition = topic.partition(0)
    lease = await take_lease(database, scopes=())
    first = Member(database, objects, clock, lease)
    await first.open()
    await first.commit([append(partition, b"1")])
    sent: asyncio.Future[tuple[str, Sequence[Any]]] = asyncio.get_running_loop().create_future()

    async def on_its_way(statement: str, values: Sequence[Any]) -> Sequence[Any]:
        sent.set_result((statement, values))
        return await asyncio.Future()

    first.inline._ask = on_its_way  # type: ignore[method-assign]
    late = first.commit([append(partition, b"late")])
    statement, arguments = await sent
    late.cancel()
    second = Member(database, objects, clock, lease)
    await second.open()
    async with await database.connect("tests") as connection:
        with pytest.raises(psycopg.Error, match="came too late"):
            await connection.execute(statement.encode(), arguments)
    [outcome] = await second.commit([append(partition, b"2")])
    assert outcome.base_offset == 1
    await second.close()
    assert await values(database, objects, clock, partition) == [b"1", b"2"]


async def test_a_broker_notices_the_loss_of_its_commits(
    shared: SharedStorage, database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    topic = make_topic()
    await shared.create_topics([topic])
    async with members(2, database, objects, clock) as [one, other]:
        for _ in range(3):
            await one.commit([append(topic.partition(0), b"1")])
        connection = await database.connect("tests")
        await connection.execute(
            "UPDATE committer SET number = 2 WHERE path = 0 AND incarnation = %s", [one.incarnation]
        )
        with pytest.raises(StorageFenced, match="lost acknowledged commits"):
            await one.commit([append(topic.partition(0), b"1")])
        assert one.fenced is not None
        assert other.fenced is None
        [(loss,)] = await (await connection.execute("SELECT loss FROM cluster")).fetchall()
        assert "was answered" in loss
        late = Member(database, objects, clock, await take_lease(database, scopes=()))
        with pytest.raises(CommitsLost, match="was answered"):
            await late.open()
        await connection.close()


async def test_a_call_that_a_deadlock_ends_is_repeated(
    shared: SharedStorage, database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    """None is possible between transactions of ours; an operator's may lock in any order."""
    topic = make_topic(partitions=2)
    await shared.create_topics([topic])
    one, other = topic.partition_ids()
    operator = await database.connect("tests")
    lock = "SELECT FROM log WHERE id = %s FOR UPDATE"
    async with members(1, database, objects, clock) as [member]:
        with contextlib.suppress(psycopg.errors.DeadlockDetected):
            async with operator.transaction():
                await operator.execute(lock, [member.logs[other].id])
                commit = member.commit([append(one, b"1"), append(other, b"2")])
                await asyncio.sleep(0.3)
                await operator.execute(lock, [member.logs[one].id])
        assert [outcome.base_offset for outcome in await commit] == [0, 0]
    await operator.close()
    assert await values(database, objects, clock, one) == [b"1"]
    assert await values(database, objects, clock, other) == [b"2"]


async def test_no_deadlock_of_calls_on_the_same_logs(
    shared: SharedStorage, database: Database, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    topic = make_topic(partitions=20)
    await shared.create_topics([topic])
    partitions = topic.partition_ids()
    rounds = 700

    async def work(member: Member, seed: int) -> None:
        random = Random(seed)
        for _ in range(rounds):
            chosen = random.sample(partitions, 8)
            await member.commit([append(each, b"%d" % seed) for each in chosen])

    async with members(3, database, objects, clock) as made:
        await asyncio.gather(*(work(each, number) for number, each in enumerate(made)))
        assert [each.inline._metrics.failures for each in made] == [0, 0, 0]
    connection = await database.connect("tests")
    found = await connection.execute("SELECT sum(next) FROM log")
    assert await found.fetchall() == [(3 * rounds * 8,)]
    await connection.close()
