"""Manifests: clients find in the object store what brokers would give them, and nothing else."""

from uuid import UUID

import pytest

from posthouse.model.errors import OffsetOutOfRange, UnknownPartition
from posthouse.model.ids import PartitionId, TopicId, new_topic_id
from posthouse.records.batch import iter_headers
from posthouse.storage.segment_objects import ObjectRange
from tests.storage.batches import make_batch
from tests.storage.shared.manifests.clients import SIGNED, manifest_client, may_read_all
from tests.storage.shared.shared_logs import SharedLogs
from tests.storage.shared.test_consolidation import consolidation, fill

SMALL = {"segment_bytes": "500", "index_interval_bytes": "1"}


async def test_every_range_of_a_log(logs: SharedLogs) -> None:
    [log] = await logs.create("orders", 1, **SMALL)
    await fill(logs, log, 12)
    await consolidation(logs).run_once()
    assert len(await logs.segments(log)) > 2
    everything = await logs.values(log)
    async with manifest_client(logs) as client:
        for first in range(24):
            for end in range(first + 1, 25):
                found = await client.values(log, first, end)
                assert found == {at: everything[at] for at in range(first, end)}


async def test_only_the_batches_of_the_range_are_read(logs: SharedLogs) -> None:
    [log] = await logs.create(segment_bytes="100000", index_interval_bytes="1")
    await fill(logs, log, 12)
    await consolidation(logs).run_once()
    async with manifest_client(logs) as client:
        found = await client.range_of(log, 7, 11)
        [data] = await client.bytes_of(found)
    assert [header.base_offset for _, header in iter_headers(data)] == [6, 8, 10]


async def test_a_damaged_index_costs_time_only(logs: SharedLogs) -> None:
    [log] = await logs.create(segment_bytes="100000", index_interval_bytes="1")
    await fill(logs, log, 12)
    await consolidation(logs).run_once()
    await logs.connection.execute("UPDATE segment SET index = 'damaged'")
    async with manifest_client(logs) as client:
        assert list(await client.values(log, 7, 11)) == [7, 8, 9, 10]


async def test_the_tail_is_left_to_brokers(logs: SharedLogs) -> None:
    [log] = await logs.create()
    async with manifest_client(logs) as client:
        await fill(logs, log, 3)
        found = await client.range_of(log)
        assert (found.next, list(found.segments), client.hold) == (6, [], None)
        await consolidation(logs).run_once()
        await fill(logs, log, 2)
        found = await client.range_of(log)
        assert found.next == 10
        assert [(each.base, each.last) for each in found.segments] == [(0, 5)]
        assert client.hold is not None
        assert not (await client.range_of(log, 6)).segments


async def test_records_below_the_start_are_not_there(logs: SharedLogs) -> None:
    [log] = await logs.create()
    await fill(logs, log, 5)
    await consolidation(logs).run_once()
    await logs.trim(log, 3)
    async with manifest_client(logs) as client:
        refused = await client.range_of(log, 2)
        assert isinstance(refused.refusal, OffsetOutOfRange)
        assert (refused.segments, refused.next) == ((), 10)
        assert list(await client.values(log, 3)) == list(range(3, 10))


async def test_a_deleted_topic(logs: SharedLogs) -> None:
    [log] = await logs.create()
    await fill(logs, log, 2)
    await consolidation(logs).run_once()
    async with manifest_client(logs) as client:
        await logs.connection.execute("UPDATE log SET deleted = true")
        assert isinstance((await client.range_of(log)).refusal, UnknownPartition)
        unknown = ObjectRange(partition=PartitionId(new_topic_id(), 0), first=0, end=9)
        [found] = (await client.ask(unknown)).ranges
        assert (type(found.refusal), found.next) == (UnknownPartition, 9)


async def test_open_transactions_bound_what_is_committed(logs: SharedLogs) -> None:
    [log] = await logs.create("orders", 1, **SMALL)
    await fill(logs, log, 12)
    await consolidation(logs).run_once()
    await logs.connection.execute("INSERT INTO producer VALUES (%s, 7, 0, '{}', 0, 9)", [log])
    async with manifest_client(logs) as client:
        assert list(await client.values(log)) == list(range(9))
        assert list(await client.values(log, committed=False)) == list(range(24))
        assert not (await client.range_of(log, 9)).segments


async def test_aborted_transactions_of_the_range(logs: SharedLogs) -> None:
    [log] = await logs.create("orders", 1, **SMALL)
    await fill(logs, log, 12)
    await consolidation(logs).run_once()
    for first, last in ((0, 2), (3, 21), (8, 9), (22, 23)):
        await logs.connection.execute("INSERT INTO aborted VALUES (%s, %s, %s, 7)", [log, last, first])
    async with manifest_client(logs) as client:
        found = await client.range_of(log, 8, 20)
        assert [(each.first_offset, each.last_offset) for each in found.aborted] == [(8, 9), (3, 21)]
        assert (await client.range_of(log, 8, 20, committed=False)).aborted == []


async def test_large_manifests_come_in_parts(logs: SharedLogs) -> None:
    many = await logs.create("many", 3, segment_bytes="200")
    for each in many:
        await fill(logs, each, 5)
    await consolidation(logs).run_once()
    async with manifest_client(logs, segments=6) as client:
        found = await client.ask(*[await client.wanted(each) for each in many])
        assert [len(each.segments) for each in found.ranges] == [2, 2, 2]
        assert [each.next for each in found.ranges] == [8, 8, 8]
    async with manifest_client(logs, segments=1) as client:
        assert await client.values(many[0]) == await logs.values(many[0])
        assert client.asked == 3


async def test_signed_addresses(logs: SharedLogs) -> None:
    [log] = await logs.create()
    await fill(logs, log, 2)
    await consolidation(logs).run_once()
    [segment] = await logs.segments(log)
    async with manifest_client(logs) as client:
        [found] = (await client.ask(await client.wanted(log), signed=True)).ranges
        assert [each.address for each in found.segments] == [f"{SIGNED}{segment.key}?for=3600"]
        assert SIGNED not in repr(found), "an address is a secret"


@pytest.mark.parametrize("signed", [True, False])
async def test_objects_with_records_of_others(logs: SharedLogs, signed: bool) -> None:
    """A signed address gives access to the whole object. With credentials of its own a reader needs none."""
    [log] = await logs.create("mine")
    [other] = await logs.create("theirs")
    await fill(logs, log, 2)
    await consolidation(logs).run_once()
    await fill(logs, log, 2)
    await fill(logs, other, 2)
    await consolidation(logs).run_once()
    alone, mixed = await logs.segments(log)
    assert mixed.key == (await logs.segments(other))[0].key != alone.key
    mine = (await logs.partition_of(log)).topic

    def may_read(topic: TopicId | None) -> bool:
        return topic == mine

    async with manifest_client(logs) as client:
        [found] = (await client.ask(await client.wanted(log), signed=signed, may_read=may_read)).ranges
        assert [each.base for each in found.segments] == ([0] if signed else [0, 4])
        assert found.next == 8
        held = await logs.one("SELECT objects FROM hold")
        assert held == ([alone.object] if signed else [alone.object, mixed.object],)


@pytest.mark.parametrize("change", ["segment", "topic"])
async def test_objects_with_records_of_nobody(logs: SharedLogs, change: str) -> None:
    """Another segment lay in the object, or is of a deleted topic: it may have had anybody's records."""
    [log] = await logs.create("mine")
    [other] = await logs.create("theirs")
    await fill(logs, log, 2)
    await fill(logs, other, 2)
    await consolidation(logs).run_once()
    if change == "segment":
        await logs.connection.execute("DELETE FROM segment WHERE log = %s", [other])
    else:
        await logs.connection.execute("UPDATE log SET deleted = true WHERE id = %s", [other])
    async with manifest_client(logs) as client:
        for may_read in (may_read_all, _is_known):
            [found] = (await client.ask(await client.wanted(log), signed=True, may_read=may_read)).ranges
            assert bool(found.segments) == (may_read is may_read_all)


def _is_known(topic: TopicId | None) -> bool:
    return topic is not None


async def test_a_hole_in_the_objects_of_a_reader(logs: SharedLogs) -> None:
    """Brokers have what lies between the objects that a reader may see."""
    [log] = await logs.create("mine")
    [other] = await logs.create("theirs")
    for number in range(3):
        await logs.append(log, make_batch(b"%d" % number))
        if number == 1:
            await logs.append(other, make_batch(b"secret"))
        await consolidation(logs).run_once()
    mine = (await logs.partition_of(log)).topic
    async with manifest_client(logs) as client:
        [found] = (
            await client.ask(await client.wanted(log), signed=True, may_read=lambda topic: topic == mine)
        ).ranges
        assert [(each.base, each.last) for each in found.segments] == [(0, 0), (2, 2)]


async def test_one_statement_finds_that_there_is_nothing(logs: SharedLogs) -> None:
    """A stream that has caught up asks often."""
    [log] = await logs.create()
    await fill(logs, log, 2)
    async with manifest_client(logs) as client:
        await client.range_of(log)
        before = await logs.one("SELECT pg_current_xact_id()")
        for _ in range(10):
            await client.range_of(log)
        after = await logs.one("SELECT pg_current_xact_id()")
        assert int(after[0]) - int(before[0]) == 1
        assert await logs.one("SELECT count(*) FROM hold") == (0,)
        assert isinstance(client.hold, UUID | None)


async def test_more_aborted_transactions_than_a_manifest_can_have(
    logs: SharedLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("posthouse.storage.shared.manifests.manifests._ABORTED", 3)
    [log] = await logs.create("orders", 1, **SMALL)
    await fill(logs, log, 24)
    await consolidation(logs).run_once()
    first, second, third, *_ = await logs.segments(log)
    for offset in (0, 1, first.last, second.base, third.base, third.base + 1, third.base + 2, third.base + 3):
        await logs.connection.execute("INSERT INTO aborted VALUES (%s, %s, %s, 7)", [log, offset, offset])
    async with manifest_client(logs) as client:
        found = await client.range_of(log)
        assert [each.last for each in found.segments] == [first.last]
        assert ([each.first_offset for each in found.aborted], found.next) == (
            [0, 1, first.last],
            second.base,
        )
        found = await client.range_of(log, second.base)
        assert ([each.last for each in found.segments], found.next) == ([second.last], third.base)
        found = await client.range_of(log, third.base)
        assert (list(found.segments), found.aborted, found.next) == ([], [], third.last + 1)
        found = await client.range_of(log, third.last + 1)
        assert (found.next, found.segments[-1].last) == (48, 47)
