"""Brokers that keep house for their own logs on one database: moves, deaths, and brokers without a scope."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from posthouse.model.clock import ManualClock
from posthouse.model.errors import NotLeader, UnknownPartition
from posthouse.model.ids import PartitionId
from posthouse.model.scopes import (
    COORDINATOR,
    GROUPS,
    HOUSEKEEPING,
    NAMESPACES,
    Scope,
    scope_of_log,
    shard_of_log,
)
from posthouse.model.topics import Topic
from posthouse.storage.operations import Trim
from posthouse.storage.shared.database import Database, LeaseLost, ScopeNeeded
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.shared.housekeeping.consolidation.consolidation import ConsolidationSettings
from posthouse.storage.shared.housekeeping.upkeep import UpkeepSettings
from tests.storage.batches import append, make_topic, read_all
from tests.storage.compacted import COMPACT, put
from tests.storage.shared.faulty_objects import FaultyObjectStore
from tests.storage.shared.opened import (
    TestLease,
    make_member,
    make_shared,
    move_scope,
    release_scope,
    serve,
    take_lease,
)
from tests.storage.shared.several.brokers import until

NEVER = 10**6
BY_HAND = UpkeepSettings(
    consolidation=ConsolidationSettings(due_bytes=0), consolidation_seconds=NEVER, merging_seconds=NEVER
)
PARTITIONS = 24


class Two:
    """The coordinator has the even scopes of housekeeping and one of namespaces, the other broker the odd
    ones."""

    def __init__(self, database: Database, objects: FaultyObjectStore, clock: ManualClock) -> None:
        self.database = database
        self.objects = objects
        self.objects_of_b = FaultyObjectStore(objects._inner)
        self.clock = clock

    async def open(self) -> None:
        even = (COORDINATOR, *GROUPS, *HOUSEKEEPING[::2], NAMESPACES[0])
        self.a = await make_shared(self.database, self.objects, self.clock, upkeep=BY_HAND, scopes=even)
        await self.a.open()
        await serve(self.a, NAMESPACES[0])
        lease = await take_lease(self.database, scopes=HOUSEKEEPING[1::2])
        self.b = await make_member(self.database, self.objects_of_b, self.clock, lease=lease, upkeep=BY_HAND)
        await self.b.open()

    async def close(self) -> None:
        await self.b.close()
        await self.a.close()

    async def create(self, topic: Topic) -> None:
        await self.a.create_topics([topic])
        await self.b.refresh_definitions()

    async def fill(self, topic: Topic, count: int = 3) -> None:
        for number in range(count):
            await self.a.commit([append(each, b"%d" % number) for each in topic.partition_ids()])

    async def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        async with await self.database.connect("tests") as connection:
            return await (await connection.execute(statement.encode(), list(values))).fetchall()

    async def consolidated(self) -> set[int]:
        """The logs without runs."""
        return {log for [log] in await self.rows("SELECT id FROM log WHERE segments_to = next AND next > 0")}

    async def logs(self, *scopes: Scope) -> set[int]:
        found = {log for [log] in await self.rows("SELECT id FROM log")}
        return {log for log in found if scope_of_log(log) in scopes}


@pytest.fixture
async def two(database: Database, objects: FaultyObjectStore, clock: ManualClock) -> AsyncIterator[Two]:
    made = Two(database, objects, clock)
    await made.open()
    yield made
    await made.close()


async def consolidate(storage: SharedStorage) -> None:
    await storage.log_scopes._housekeeping._parts[0].run_once()


async def merge(storage: SharedStorage) -> None:
    await storage.log_scopes._housekeeping._parts[1].run_once()


def partition_of(two: Two, scope: Scope, topic: Topic) -> PartitionId:
    """One whose log belongs to the scope."""
    return next(each for each in topic.partition_ids() if scope_of_log(two.a._logs[each].id) == scope)


async def test_python_and_sql_agree_on_the_scope_of_a_log(two: Two) -> None:
    numbers = [*range(1, 2000), 10**6, 2**31 - 1]
    found = await two.rows("SELECT id, shard_of_log(id), scope_of_log(id) FROM unnest(%s) AS id", numbers)
    assert found == [(each, shard_of_log(each), scope_of_log(each).name) for each in numbers]


@pytest.mark.parametrize("every", [1, 2, 3, 16, 64])
def test_logs_are_spread_evenly_whatever_their_pattern(every: int) -> None:
    """Topics with a like number of partitions, queues whose data and references take turns."""
    counts = Counter(shard_of_log(number) for number in range(1, 1 + 1600 * every, every))
    assert len(counts) == len(HOUSEKEEPING)
    assert all(80 <= count <= 120 for count in counts.values())


async def test_each_broker_consolidates_its_own_logs(two: Two) -> None:
    topic = make_topic(partitions=PARTITIONS)
    await two.create(topic)
    await two.fill(topic)
    of_a, of_b = await two.logs(*HOUSEKEEPING[::2]), await two.logs(*HOUSEKEEPING[1::2])
    assert len(of_a) > 5 and len(of_b) > 5 and len(of_a | of_b) == PARTITIONS
    await consolidate(two.b)
    assert await two.consolidated() == of_b
    await consolidate(two.a)
    assert await two.consolidated() == of_a | of_b
    assert two.objects.calls["put"] == two.objects_of_b.calls["put"] == 1, "all scopes of a broker share it"
    for storage in (two.a, two.b):
        await storage.refresh(topic.partition_ids())
        for partition in topic.partition_ids():
            assert list(await read_all(storage, partition)) == [0, 1, 2]


async def test_each_broker_merges_its_own_segments(two: Two) -> None:
    topic = make_topic(partitions=PARTITIONS, retention_ms="-1", segment_bytes="1000000")
    await two.create(topic)
    for _ in range(8):
        await two.fill(topic, 1)
        await consolidate(two.a)
        await consolidate(two.b)
    await merge(two.b)
    merged = {log for [log] in await two.rows("SELECT DISTINCT log FROM segment WHERE generation = 1")}
    assert merged == await two.logs(*HOUSEKEEPING[1::2])


async def test_each_broker_removes_expired_records_of_its_own_logs(two: Two) -> None:
    topic = make_topic(partitions=PARTITIONS, retention_ms="60000")
    await two.create(topic)
    await two.fill(topic)
    two.clock.advance(3600 * 24 * 365 * 100)
    await two.b.enforce_retention()
    trimmed = {log for [log] in await two.rows("SELECT id FROM log WHERE start = next")}
    assert trimmed == await two.logs(*HOUSEKEEPING[1::2])
    assert two.b.metrics.retention_records == 3 * len(trimmed)
    await two.a.enforce_retention()
    assert await two.rows("SELECT id FROM log WHERE start < next") == []


async def test_each_broker_compacts_its_own_logs(two: Two) -> None:
    topic = make_topic("compacted", PARTITIONS, id=None, **COMPACT | {"segment_bytes": "200"})
    await two.create(topic)
    for number in range(4):
        await two.b.commit(
            [put(each, (b"key", b"%d" % number), (b"x" * 60, b"x" * 60)) for each in topic.partition_ids()]
        )
    await two.b.compact()
    compacted = {log for [log] in await two.rows("SELECT DISTINCT log FROM segment WHERE clean_to > 0")}
    assert compacted == await two.logs(*HOUSEKEEPING[1::2])
    await two.a.compact()
    assert (
        await two.rows("SELECT FROM log WHERE id NOT IN (SELECT log FROM segment WHERE clean_to > 0)") == []
    )


async def test_logs_of_a_namespace_are_cleaned_by_its_holder_and_moved_by_any(two: Two) -> None:
    """Retention and compaction ask queues, which only the holder knows."""
    compacted = make_topic("compacted", PARTITIONS, id=None, **COMPACT | {"segment_bytes": "200"})
    expiring = make_topic("expiring", PARTITIONS, id=None, retention_ms="60000")
    for topic in (compacted, expiring):
        await two.create(replace(topic, scope=NAMESPACES[0]))
    for number in range(4):
        for topic in (compacted, expiring):
            await two.a.commit(
                [put(each, (b"key", b"%d" % number), (b"x", b"x" * 60)) for each in topic.partition_ids()]
            )
    two.clock.advance(3600 * 24 * 365 * 100)
    await two.b.compact()
    assert await two.b.enforce_retention() == {}
    assert await two.rows("SELECT FROM log WHERE start > 0") == []
    assert await two.rows("SELECT FROM segment WHERE clean_to > 0") == []
    await consolidate(two.b)
    assert await two.consolidated() == await two.logs(*HOUSEKEEPING[1::2])
    await two.a.compact()
    assert (
        await two.rows(
            "SELECT FROM log JOIN topic ON topic.id = topic WHERE name = 'compacted' "
            "AND log.id NOT IN (SELECT log FROM segment WHERE clean_to > 0)"
        )
        == []
    )
    await two.a.enforce_retention()
    assert (
        await two.rows(
            "SELECT FROM log JOIN topic ON topic.id = topic WHERE name = 'expiring' AND start < next"
        )
        == []
    )


async def test_logs_of_a_namespace_are_cleaned_where_it_has_moved(two: Two) -> None:
    """The broker before may still believe to hold it: the database refuses what it would remove."""
    scope = NAMESPACES[0]
    compacted = replace(
        make_topic("compacted", PARTITIONS, id=None, **COMPACT | {"segment_bytes": "200"}), scope=scope
    )
    expiring = replace(make_topic("expiring", PARTITIONS, id=None, retention_ms="60000"), scope=scope)
    for topic in (compacted, expiring):
        await two.create(topic)
        for number in range(4):
            await two.a.commit(
                [put(each, (b"key", b"%d" % number), (b"x", b"x" * 60)) for each in topic.partition_ids()]
            )
    two.clock.advance(3600 * 24 * 365 * 100)
    for storage in (two.a, two.b):
        await consolidate(storage)
    before = await two.rows("SELECT log, base, object, generation, clean_to FROM segment ORDER BY log, base")
    await release_scope(two.database, scope, two.a)
    lease = two.b._lease
    assert isinstance(lease, TestLease)
    await two.rows("SELECT take_scopes(%s, %s, %s)", lease.incarnation, lease.epoch, [scope.name])
    lease.scopes.add(scope)
    two.a._lease.scopes.add(scope)  # type: ignore[attr-defined]
    await two.a.compact()
    after = await two.rows("SELECT log, base, object, generation, clean_to FROM segment ORDER BY log, base")
    assert after == before
    two.a._lease.scopes.discard(scope)  # type: ignore[attr-defined]
    two.a.leave_namespaces(scope)
    await two.a.compact()
    await two.a.enforce_retention()
    assert await two.rows("SELECT FROM log WHERE start > 0") == []

    await serve(two.b, scope)
    await two.b.compact()
    await two.b.enforce_retention()
    uncompacted = (
        "SELECT FROM log JOIN topic ON topic.id = topic WHERE name = 'compacted' "
        "AND log.id NOT IN (SELECT log FROM segment WHERE clean_to > 0)"
    )
    assert await two.rows(uncompacted) == []
    kept = "SELECT FROM log JOIN topic ON topic.id = topic WHERE name = 'expiring' AND start < next"
    assert await two.rows(kept) == []
    # It moves bytes of its own logs only, also of those that it cleans.
    for topic in (compacted, expiring):
        await two.b.commit([put(each, (b"key", b"new")) for each in topic.partition_ids()])
    await consolidate(two.b)
    assert await two.consolidated() == await two.logs(*HOUSEKEEPING[1::2])


async def test_a_topic_that_has_just_got_a_scope_is_not_trimmed(two: Two) -> None:
    """The member has not heard of it. The database has."""
    topic = make_topic(partitions=PARTITIONS)
    await two.create(topic)
    await two.fill(topic)
    partition = partition_of(two, HOUSEKEEPING[1], topic)
    await two.b._definition_follower.stop()
    await two.a.give_topics([topic], NAMESPACES[0])
    [outcome] = await two.b.commit([Trim(partition, 2, HOUSEKEEPING[1])])
    assert isinstance(outcome.refusal, NotLeader)
    assert await two.rows("SELECT FROM log WHERE start > 0") == []
    assert two.b.bounds(partition).start == 0


async def test_a_trim_of_a_deleted_topic_fails_no_other_commit(two: Two) -> None:
    topic, other = make_topic(partitions=PARTITIONS), make_topic("other", id=None)
    await two.create(topic)
    await two.create(other)
    await two.fill(topic)
    partition = partition_of(two, HOUSEKEEPING[1], topic)
    await two.b._definition_follower.stop()
    await two.a.delete_topics([topic.id])
    for is_removed in (False, True):
        if is_removed:
            assert two.a._upkeep is not None
            await two.a._upkeep._housekeeping._parts[1].run_once()
            assert await two.rows("SELECT count(*) FROM log") == [(1,)]
        trimmed = two.b.commit([Trim(partition, 2, HOUSEKEEPING[1])])
        [appended] = await two.b.commit([append(other.partition(0), b"x")])
        assert appended.refusal is None
        [outcome] = await trimmed
        assert isinstance(outcome.refusal, UnknownPartition)


async def test_a_scope_in_whose_name_is_trimmed_must_be_held(two: Two) -> None:
    topic = make_topic(partitions=PARTITIONS)
    await two.create(topic)
    await two.fill(topic)
    own, others = (partition_of(two, HOUSEKEEPING[number], topic) for number in (1, 2))
    for scope in (HOUSEKEEPING[2], NAMESPACES[0]):
        with pytest.raises(ScopeNeeded):
            two.b.commit([Trim(others, 1, scope)])
    [outcome] = await two.b.commit([Trim(own, 1, HOUSEKEEPING[1])])
    assert outcome.log_start == 1
    [outcome] = await two.b.commit([Trim(others, 2)])
    assert outcome.log_start == 2, "users delete records at any broker"
    await release_scope(two.database, HOUSEKEEPING[1], two.b)
    two.b._lease.scopes.add(HOUSEKEEPING[1])  # type: ignore[attr-defined]
    with pytest.raises(LeaseLost, match="does not hold the scope housekeeping/01"):
        await two.b.commit([Trim(own, 2, HOUSEKEEPING[1])])


async def test_a_scope_moves_while_it_is_worked_on(two: Two) -> None:
    """The step is waited for, and its scope is released with all that it did. The rest is done by the next
    holder: nothing twice."""
    topic = make_topic(partitions=PARTITIONS)
    await two.create(topic)
    await two.fill(topic)
    scope = HOUSEKEEPING[1]
    two.objects_of_b.gate.clear()
    working = asyncio.create_task(consolidate(two.b))
    await until(lambda: two.objects_of_b.calls["put"] == 1)
    moving = asyncio.create_task(move_scope(two.database, scope, two.b, two.a))
    await until(lambda: not two.b.log_scopes.holds(scope))
    assert not moving.done()
    assert await two.rows("SELECT holder FROM scope WHERE name = %s", scope.name) == [
        (two.b._lease.incarnation,)
    ]
    two.objects_of_b.gate.set()
    await asyncio.gather(working, moving)
    of_b = await two.logs(*HOUSEKEEPING[1::2])
    assert await two.consolidated() == of_b
    await two.fill(topic, 1)
    await consolidate(two.a)
    assert await two.consolidated() == await two.logs(scope, *HOUSEKEEPING[::2])


async def test_a_step_that_takes_too_long_does_not_hold_up_a_move_and_is_refused(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(partitions=PARTITIONS)
    await two.create(topic)
    await two.fill(topic)
    monkeypatch.setattr(two.b.log_scopes._kept, "_step_seconds", 0.05)
    two.objects_of_b.gate.clear()
    working = asyncio.create_task(consolidate(two.b))
    await until(lambda: two.objects_of_b.calls["put"] == 1)
    for scope in HOUSEKEEPING[1::2]:
        await move_scope(two.database, scope, two.b, two.a)
    await consolidate(two.a)
    after = await two.rows("SELECT log, base, object FROM segment ORDER BY log, base")
    assert await two.consolidated() == await two.logs(*HOUSEKEEPING)
    two.objects_of_b.gate.set()
    await working
    assert await two.rows("SELECT log, base, object FROM segment ORDER BY log, base") == after
    assert two.b.metrics.remote is not None and two.b.metrics.remote().upkeep.segments_written == 0
    assert not two.b._lease.is_lost, "it goes on with its other work"
    await two.b.commit([append(topic.partition(0), b"x")])


@pytest.mark.parametrize("work", ["consolidate", "merge", "compact"])
async def test_a_broker_that_lost_its_scope_unnoticed_is_refused(two: Two, work: str) -> None:
    """It believes to hold it, as the next holder does, rightly."""
    compaction = COMPACT if work == "compact" else {"retention_ms": "-1"}
    topic = make_topic("logs", PARTITIONS, id=None, **compaction | {"segment_bytes": "1000"})
    await two.create(topic)
    for number in range(8):
        await two.a.commit(
            [put(each, (b"key", b"%d" % number), (b"x", b"x" * 90)) for each in topic.partition_ids()]
        )
        if work == "merge":
            await consolidate(two.a)
            await consolidate(two.b)
    if work == "compact":
        await consolidate(two.b)
    for scope in HOUSEKEEPING[1::2]:
        await release_scope(two.database, scope, two.b)
    logs = "SELECT id, start, segments_to FROM log ORDER BY id"
    segments = "SELECT log, base, last, generation, clean_to FROM segment ORDER BY log, base"
    before = await two.rows(logs), await two.rows(segments)
    objects = await two.rows("SELECT id, live FROM object ORDER BY id")
    if work == "compact":
        await two.b.compact()
    else:
        await {"consolidate": consolidate, "merge": merge}[work](two.b)
    assert (await two.rows(logs), await two.rows(segments)) == before
    assert await two.rows("SELECT id, live FROM object ORDER BY id") == objects
    assert not two.b._lease.is_lost
    for scope in HOUSEKEEPING[1::2]:
        await two.b.log_scopes.release(scope)
        await take(two.a, two.database, scope)
    await consolidate(two.a)
    assert await two.consolidated() == await two.logs(*HOUSEKEEPING)


async def take(storage: SharedStorage, database: Database, scope: Scope) -> None:
    lease = storage._lease
    assert isinstance(lease, TestLease)
    async with await database.connect("tests") as connection:
        await connection.execute(
            "SELECT take_scopes(%s, %s, %s)", [lease.incarnation, lease.epoch, [scope.name]]
        )
    lease.scopes.add(scope)
    await storage.log_scopes.take(scope)


async def test_another_broker_keeps_the_logs_of_one_that_died(two: Two) -> None:
    topic = make_topic(partitions=PARTITIONS)
    await two.create(topic)
    await two.fill(topic)
    died = "UPDATE lease SET until = clock_timestamp() WHERE holder = %s RETURNING holder"
    await two.rows(died, two.b._lease.incarnation)
    for scope in HOUSEKEEPING[1::2]:
        await take(two.a, two.database, scope)
    await consolidate(two.a)
    assert await two.consolidated() == await two.logs(*HOUSEKEEPING)
    await two.fill(topic, 1)
    with pytest.raises(LeaseLost):
        await consolidate(two.b)
