"""Consolidation moves past damaged runs: what is lost is marked, what is good stays, and slots are freed."""

from typing import Any, cast

import pytest

from posthouse.model.clock import ManualClock
from posthouse.model.ids import PartitionId, new_topic_id
from posthouse.records.batch import BatchHeader, iter_headers, parse_header
from posthouse.records.references import NEVER, Reference
from posthouse.storage.retention import nothing_needed
from posthouse.storage.shared.administration.verify import SharedVerification
from posthouse.storage.shared.housekeeping.consolidation.consolidation import ConsolidationSettings
from posthouse.storage.shared.housekeeping.consolidation.salvage import salvaged
from posthouse.storage.shared.housekeeping.housekeeping_metrics import HousekeepingMetrics
from posthouse.storage.shared.objects.store import ObjectStore
from posthouse.storage.shared.reads.runs import RunRow
from tests.storage.batches import make_batch, values_in
from tests.storage.compacted import COMPACT
from tests.storage.shared.crashes import Crash
from tests.storage.shared.opened import make_shared
from tests.storage.shared.shared_logs import SharedLogs
from tests.storage.shared.test_consolidation import consolidation, fill
from tests.storage.shared.test_garbage import garbage
from tests.storage.shared.test_segment_compaction import compaction, write
from tests.storage.shared.test_slots import slots

NO_WAIT = ConsolidationSettings(due_bytes=0, damage_wait_ms=0)


def run_of(data: bytes, count: int, base: int = 100) -> RunRow:
    return RunRow(
        log=1,
        base=base,
        last=base + count - 1,
        slot=0,
        inline=1,
        object=None,
        key=None,
        object_size=None,
        pos=0,
        size=len(data),
        max_time=0,
        created_ms=0,
        refs=None,
    )


def headers_in(data: bytes | bytearray) -> list[BatchHeader]:
    return [header for _, header in iter_headers(data)]


def ranges(data: bytes | bytearray) -> list[tuple[int, int, bool]]:
    return [(header.base_offset, header.last_offset, header.is_damage) for header in headers_in(data)]


BATCHES = [bytes(make_batch(*[b"%d.%d" % (size, at) for at in range(size)])) for size in (2, 3, 1, 4)]
WHOLE = b"".join(BATCHES)


@pytest.mark.parametrize(
    ("damaged", "expected"),
    [
        ([0], [(100, 101, True), (102, 104, False), (105, 105, False), (106, 109, False)]),
        ([1], [(100, 101, False), (102, 104, True), (105, 105, False), (106, 109, False)]),
        ([3], [(100, 101, False), (102, 104, False), (105, 105, False), (106, 109, True)]),
        ([1, 2], [(100, 101, False), (102, 105, True), (106, 109, False)]),
        ([0, 3], [(100, 109, True)]),
    ],
)
def test_good_batches_at_both_ends_stay(damaged: list[int], expected: list[tuple[int, int, bool]]) -> None:
    data = bytearray(WHOLE)
    for number in damaged:
        data[sum(map(len, BATCHES[:number])) + 65] ^= 1
    made = salvaged(run_of(WHOLE, 10), bytes(data))
    assert ranges(made) == expected
    values_in(made)


def test_batches_behind_an_unknown_length_are_lost() -> None:
    data = bytearray(WHOLE)
    data[len(BATCHES[0]) + 8] = 0x7F
    assert ranges(salvaged(run_of(WHOLE, 10), bytes(data))) == [(100, 101, False), (102, 109, True)]
    assert ranges(salvaged(run_of(WHOLE, 10), WHOLE[:-5])) == [
        (100, 101, False),
        (102, 104, False),
        (105, 105, False),
        (106, 109, True),
    ]


def test_batches_behind_a_damaged_one_are_not_counted_back_from_a_missing_end() -> None:
    data = bytearray(WHOLE[: -len(BATCHES[-1])])
    data[65] ^= 1
    assert ranges(salvaged(run_of(WHOLE, 10), bytes(data))) == [(100, 109, True)]


@pytest.mark.parametrize("count", [1, 9, 10, 11])
def test_counts_that_do_not_fit(count: int) -> None:
    made = salvaged(run_of(WHOLE, count), WHOLE + b"?")
    assert headers_in(made)[-1].last_offset == 99 + count
    assert any(header.is_damage for header in headers_in(made))


def test_nothing_is_left() -> None:
    assert ranges(salvaged(run_of(b"", 10), b"")) == [(100, 109, True)]


async def damage(logs: SharedLogs, log: int, base: int) -> None:
    await logs.connection.execute(
        "UPDATE inline_data SET data = set_byte(data, 65, 77) "
        "WHERE id = (SELECT inline FROM run WHERE log = %s AND base = %s)",
        [log, base],
    )


async def problems(logs: SharedLogs) -> list[str]:
    verification = SharedVerification(logs.connect, logs.objects)
    return [each.problem async for each in verification.findings()]


async def books(logs: SharedLogs) -> tuple[Any, ...]:
    return await logs.one("SELECT sum(bytes) - sum(stored_bytes(id)) FROM log")


async def test_it_waits_and_then_goes_on(
    logs: SharedLogs, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    [log] = await logs.create()
    await fill(logs, log, 6)
    before = await logs.values(log)
    await damage(logs, log, 8)
    await slots(logs).run_once()
    metrics = HousekeepingMetrics()
    work = consolidation(logs, ConsolidationSettings(due_bytes=0, damage_wait_ms=60_000), metrics)
    await work.run_once()
    clock.advance(59)
    await work.run_once()
    assert (await logs.segments(log))[-1].last == 7
    assert metrics.damaged_logs == 1
    clock.advance(2)
    await work.run_once()
    assert metrics.damaged_logs == 0
    assert (await logs.segments(log))[-1].last == 11
    read = await logs.read(log)
    assert [each[:2] for each in ranges(read) if each[2]] == [(8, 9)]
    assert await logs.values(log) == {at: value for at, value in before.items() if at not in (8, 9)}
    assert await books(logs) == (0,)
    await slots(logs).run_once()
    await slots(logs).run_once()
    assert await logs.one("SELECT count(*) FROM run") == (0,), "its slot is free"
    [problem] = await problems(logs)
    assert "offsets 8 to 9 were damaged before consolidation and are lost" in problem
    assert caplog.text.count("not consolidated from offset 8 on") == 1
    assert caplog.text.count("the offsets 8 to 9 are lost") == 1


async def test_the_damaged_bytes_are_kept(logs: SharedLogs) -> None:
    [log] = await logs.create()
    await fill(logs, log, 3)
    await damage(logs, log, 2)
    [data] = await logs.one("SELECT data FROM inline_data WHERE id = (SELECT inline FROM run WHERE base = 2)")
    await consolidation(logs, NO_WAIT).run_once()
    topic = (await logs.partition_of(log)).topic
    assert logs.objects.stored[f"damaged/{topic.hex()}-0/2-3"][0] == data


async def test_a_crash_at_any_step(logs: SharedLogs) -> None:
    """Another broker then gives up the same run, once."""
    number, is_done = 0, False
    while not is_done:
        number += 1
        [log] = await logs.create(f"orders-{number}")
        await fill(logs, log, 4)
        await damage(logs, log, 4)
        left = number

        def step(name: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise Crash(name)

        logs.step = logs.objects.step = step
        try:
            await consolidation(logs, NO_WAIT).run_once()
            is_done = True
        except Crash:
            pass
        logs.step = logs.objects.step = lambda name: None
        await logs.take_lease()
        await consolidation(logs, NO_WAIT).run_once()
        assert [each[:2] for each in ranges(await logs.read(log)) if each[2]] == [(4, 5)]
        assert len(await logs.values(log)) == 6
        assert await books(logs) == (0,)
        found = await problems(logs)
        assert len(found) == number and all("offsets 4 to 5 were damaged" in each for each in found)
    assert number > 8


async def test_references_and_inline_data_that_is_gone(logs: SharedLogs) -> None:
    [log] = await logs.create()
    await logs.append(log, make_batch(b"a"))
    await logs.refer(log, [Reference(PartitionId(new_topic_id(), 0), 5, 3, NEVER, 90)])
    await logs.append(log, make_batch(b"b"))
    await logs.connection.execute("UPDATE run SET refs = 'not references' WHERE base = 1")
    await logs.connection.execute(
        "DELETE FROM inline_data WHERE id = (SELECT inline FROM run WHERE base = 0)"
    )
    await consolidation(logs, NO_WAIT).run_once()
    assert [each[2] for each in ranges(await logs.read(log))] == [True, True, False]
    assert await books(logs) == (0,)


async def test_a_missing_object_is_given_up_only_in_the_right_place(logs: SharedLogs) -> None:
    [log, other] = await logs.create(partitions=2)
    await logs.append(other, make_batch(b"older"), in_object=True)
    await logs.append(log, make_batch(b"lost"), in_object=True)
    await logs.append(log, make_batch(b"newer"), in_object=True)
    stored = dict(logs.objects.stored)
    keys = list(stored)
    logs.objects.stored.clear()
    logs.objects.stored[keys[2]] = stored[keys[2]]
    work = consolidation(logs, NO_WAIT)
    for _ in range(3):
        await work.run_once()
        assert await logs.segments(log) == [], "also the older object is missing: this may be another bucket"
    logs.objects.stored[keys[0]] = stored[keys[0]]
    await work.run_once()
    assert [each[2] for each in ranges(await logs.read(log))] == [True, False]
    assert await logs.values(other) == {0: b"older"}
    assert await books(logs) == (0,)


@pytest.mark.parametrize("missing", [1, len(BATCHES[-1]), len(BATCHES[-1]) + 1, len(WHOLE)])
async def test_an_object_that_is_too_short(logs: SharedLogs, missing: int) -> None:
    """What is there of it is good, and the object stays for an operator to look at unless it is empty."""
    [log] = await logs.create()
    await logs.append(log, *BATCHES, in_object=True)
    [key] = logs.objects.stored
    left = WHOLE[: len(WHOLE) - missing]
    logs.objects.stored[key] = (left, 0)
    await consolidation(logs, NO_WAIT).run_once()
    lost = 4 if missing <= len(BATCHES[-1]) else 5 if missing < len(WHOLE) else 10
    assert len(await logs.values(log)) == 10 - lost
    assert [each[:2] for each in ranges(await logs.read(log)) if each[2]] == [(10 - lost, 9)]
    assert await books(logs) == (0,)
    topic = (await logs.partition_of(log)).topic
    kept = logs.objects.stored.get(f"damaged/{topic.hex()}-0/0-9")
    assert (b"" if kept is None else kept[0]) == left
    await garbage(logs).run_once()
    assert (key in logs.objects.stored) is bool(left)
    await slots(logs).run_once()
    await slots(logs).run_once()
    assert ("1 uses are noted, 0 are found" in await problems(logs)) is bool(left)


async def test_many_objects_that_are_missing(logs: SharedLogs) -> None:
    [log, other] = await logs.create(partitions=2)
    await logs.append(other, make_batch(b"older"))
    await consolidation(logs, NO_WAIT).run_once()
    older = dict(logs.objects.stored)
    for _ in range(20):
        await logs.append(log, make_batch(b"lost"), in_object=True)
    logs.objects.stored = older
    work = consolidation(logs, NO_WAIT)
    for _ in range(5):
        await work.run_once()
    assert (await logs.segments(log))[-1].last == 19


async def test_a_run_that_is_good_again_at_the_last_moment(
    logs: SharedLogs, caplog: pytest.LogCaptureFixture
) -> None:
    [log] = await logs.create()
    await logs.append(log, *BATCHES, in_object=True)
    [lost] = logs.objects.stored
    whole = logs.objects.stored.pop(lost)
    read, failures = logs.objects.read, 2  # reading it with others, and alone

    async def restored_meanwhile(key: str, start: int, size: int) -> bytes:
        nonlocal failures
        failures -= 1
        if failures == -1:
            logs.objects.stored[lost] = whole
        return await read(key, start, size)

    logs.objects.read = restored_meanwhile  # type: ignore[method-assign]
    await consolidation(logs, NO_WAIT).run_once()
    assert failures < 0
    assert len(await logs.values(log)) == 10
    assert await problems(logs) == []
    assert "are lost" not in caplog.text


async def test_a_run_that_was_good_again_is_waited_for_again(logs: SharedLogs, clock: ManualClock) -> None:
    """Its segment was not written: another broker took the lease."""
    [log] = await logs.create()
    await logs.append(log, *BATCHES, in_object=True)
    [key] = logs.objects.stored
    whole = logs.objects.stored.pop(key)
    work = consolidation(logs, ConsolidationSettings(due_bytes=0, damage_wait_ms=60_000))
    await work.run_once()
    logs.objects.stored[key] = whole

    def fail(name: str) -> None:
        if name.startswith("before put"):
            raise Crash(name)

    logs.objects.step = fail
    with pytest.raises(Crash):
        await work.run_once()
    logs.objects.step = lambda name: None
    clock.advance(61)
    logs.objects.stored[key] = (WHOLE[:-1], 0)
    await work.run_once()
    assert await logs.segments(log) == []
    clock.advance(61)
    await work.run_once()
    assert len(await logs.values(log)) == 6


async def test_bytes_of_a_deleted_topic_are_not_damaged(
    logs: SharedLogs, caplog: pytest.LogCaptureFixture
) -> None:
    [log] = await logs.create()
    await logs.append(log, *BATCHES, in_object=True)
    read = logs.objects.read

    async def deleted_meanwhile(key: str, start: int, size: int) -> bytes:
        await logs.connection.execute("UPDATE log SET deleted = true")
        logs.objects.stored.clear()
        return await read(key, start, size)

    logs.objects.read = deleted_meanwhile  # type: ignore[method-assign]
    metrics = HousekeepingMetrics()
    await consolidation(logs, NO_WAIT, metrics).run_once()
    assert (metrics.damaged_logs, caplog.text) == (0, "")


async def test_a_damaged_run_of_a_deleted_topic_is_forgotten(logs: SharedLogs) -> None:
    [log] = await logs.create()
    await fill(logs, log, 2)
    await damage(logs, log, 2)
    work = consolidation(logs, ConsolidationSettings(due_bytes=0))
    await work.run_once()
    assert len(work._damaged._since) == 1
    logs.topics.clear()
    await work.run_once()
    assert work._damaged._since == {}


async def test_runs_that_are_missing_are_no_damaged_bytes(logs: SharedLogs) -> None:
    [log] = await logs.create()
    await fill(logs, log, 3)
    await logs.connection.execute("DELETE FROM run WHERE base = 2")
    await consolidation(logs, NO_WAIT).run_once()
    assert (await logs.segments(log))[-1].last == 1


async def test_readers_are_told(logs: SharedLogs, clock: ManualClock) -> None:
    [log] = await logs.create()
    await fill(logs, log, 3)
    await damage(logs, log, 2)
    await damage(logs, log, 4)
    await consolidation(logs, NO_WAIT).run_once()
    storage = await make_shared(logs.database, cast("ObjectStore", logs.objects), clock, tail_bytes=0)
    await storage.open()
    try:
        partition = await logs.partition_of(log)
        found = await storage.read(partition, 1, 10_000)
        assert ranges(bytes(found.data)) == [(0, 1, False), (2, 3, True), (4, 5, True)]
        assert values_in(found.data).keys() == {0, 1}
        found = await storage.read(partition, 5, 10_000)
        header = parse_header(found.data)
        assert (header.is_damage, header.next_offset) == (True, 6)
    finally:
        await storage.close()


async def test_compaction_keeps_the_mark(logs: SharedLogs) -> None:
    [log] = await logs.create("orders", 1, **COMPACT | {"segment_bytes": "14"})
    await write(logs, log, *((b"a", b"%d" % number) for number in range(5)))
    await damage(logs, log, 1)
    await consolidation(logs, NO_WAIT).run_once()
    await (await compaction(logs)).run_once(nothing_needed)
    assert [each[:2] for each in ranges(await logs.read(log)) if each[2]] == [(1, 1)]
