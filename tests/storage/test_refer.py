"""References: written with what they refer to, or not at all."""

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from posthouse.model.errors import OutOfOrderSequence, StorageFull, UnknownPartition
from posthouse.model.ids import PartitionId
from posthouse.records.batch import iter_headers, parse_header
from posthouse.records.builder import BatchBuilder
from posthouse.records.references import NEVER, Reference, iter_references
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Append, Put, Refer, Run, Trim
from posthouse.storage.outcomes import OperationRefused, Outcome
from posthouse.storage.spaces import Space
from tests.storage.batches import append, make_topic, read_all
from tests.storage.faults import FaultyDisk
from tests.storage.stores import crash_copy, file_storage, opened


async def partitions_in(storage: Storage) -> tuple[PartitionId, PartitionId]:
    """One for records, one for references."""
    topic = make_topic(partitions=2)
    await storage.create_topics([topic])
    records, references = topic.partition_ids()
    return records, references


async def references_in(storage: Storage, log: PartitionId) -> list[tuple[int, Reference]]:
    found: list[tuple[int, Reference]] = []
    position = storage.bounds(log).start
    while position < storage.bounds(log).end:
        view = memoryview((await storage.read(log, position, 200)).data)
        for place, header in iter_headers(view):
            found += iter_references(view[place : place + header.length], header)
            position = header.next_offset
    return found


def run_of(made: Append, first: int, count: int, expires_ms: int = NEVER) -> Run:
    return Run(made.partition, first, count, 10 * count, expires_ms, made)


def idempotent(partition: PartitionId, sequence: int, *values: bytes) -> Append:
    builder = BatchBuilder(producer_id=7, producer_epoch=0, base_sequence=sequence)
    for value in values:
        builder.add(None, value, timestamp=1000)
    data = builder.build()
    return Append(partition, memoryview(data), parse_header(data))


async def test_references_know_the_offsets_of_their_commit(storage: Storage) -> None:
    records, log = await partitions_in(storage)
    await storage.commit([append(records, b"before")])
    made, other = append(records, b"a", b"b", b"c"), append(records, b"d")
    runs = [run_of(made, 1, 2), run_of(other, 0, 1, 5000), Run(records, 0, 1, 6)]
    outcomes = await storage.commit([made, other, Refer(log, runs)])
    assert outcomes == [Outcome(1, 0), Outcome(4, 0), Outcome(0, 0)]
    assert storage.bounds(log).end == 4, "one position for each record"
    assert await references_in(storage, log) == [
        (0, Reference(records, 2, 2, NEVER, 20)),
        (2, Reference(records, 4, 1, 5000, 10)),
        (3, Reference(records, 0, 1, NEVER, 6)),
    ]
    found = await storage.find_timestamp(log, 0)
    assert found is not None and (found.offset, found.timestamp) == (0, 5000)


async def test_commits_that_nobody_waits_for(storage: Storage) -> None:
    records, log = await partitions_in(storage)
    futures = []
    for number in range(20):
        made = append(records, *[b"x"] * (number % 3 + 1))
        futures.append(storage.commit([made, Refer(log, [run_of(made, 0, number % 3 + 1)])]))
    for future in futures:
        await future
    found = await references_in(storage, log)
    assert [position for position, _ in found] == [each.first for _, each in found], "side by side"
    assert storage.bounds(log).end == storage.bounds(records).end


async def test_a_batch_that_was_there_is_not_referred_to_again(storage: Storage) -> None:
    records, log = await partitions_in(storage)
    for _ in range(3):
        made = idempotent(records, 0, b"a", b"b")
        [appended, referred] = await storage.commit([made, Refer(log, [run_of(made, 0, 2)])])
        assert appended.base_offset == 0
    assert referred.base_offset == 2, "the end of the log, where nothing was written"
    assert await references_in(storage, log) == [(0, Reference(records, 0, 2, NEVER, 20))]
    again, new = idempotent(records, 0, b"a", b"b"), append(records, b"c")
    await storage.commit([again, new, Refer(log, [run_of(again, 0, 2), run_of(new, 0, 1)])])
    assert (await references_in(storage, log))[1:] == [(2, Reference(records, 2, 1, NEVER, 10))]


async def test_what_is_refused_leaves_nothing(storage: Storage) -> None:
    records, log = await partitions_in(storage)
    fine, odd = append(records, b"a"), idempotent(records, 5, b"b")
    await storage.commit([idempotent(records, 0, b"x")])
    with pytest.raises(OperationRefused) as refused:
        await storage.commit([fine, odd, Refer(log, [run_of(fine, 0, 1)])])
    assert isinstance(refused.value.reason, OutOfOrderSequence)
    assert refused.value.operation is odd
    made = append(records, b"a")
    with pytest.raises(UnknownPartition):
        storage.commit([made, Refer(PartitionId(records.topic, 9), [run_of(made, 0, 1)])])
    assert storage.bounds(records).end == 1
    assert storage.bounds(log).end == 0
    assert made.base_offset == -1


async def test_what_is_refused_and_not_required_leaves_the_rest(storage: Storage) -> None:
    records, log = await partitions_in(storage)
    await storage.commit([idempotent(records, 0, b"x")])
    fine, odd = append(records, b"a"), replace(idempotent(records, 5, b"b"), required=False)
    refer = Refer(log, [run_of(odd, 0, 1), run_of(fine, 0, 1)])
    [refused, *others] = await storage.commit([odd, fine, refer, Put(Space.OFFSETS, b"key", b"value")])
    assert isinstance(refused.refusal, OutOfOrderSequence)
    assert (refused.base_offset, odd.base_offset) == (-1, -1)
    assert others == [Outcome(1, 0), Outcome(0, 0), Outcome(-1, -1)]
    assert await read_all(storage, records) == {0: b"x", 1: b"a"}
    assert await references_in(storage, log) == [(0, Reference(records, 1, 1, NEVER, 10))]
    [refused, _] = await storage.commit([odd, Refer(log, [run_of(odd, 0, 1)])])
    assert isinstance(refused.refusal, OutOfOrderSequence), "also where nothing is left to be done"
    assert storage.bounds(log).end == 1


async def test_subscribers_hear_of_every_batch_that_becomes_readable(storage: Storage) -> None:
    records, log = await partitions_in(storage)
    heard: list[tuple[PartitionId, int, int]] = []

    def arrived(partition: PartitionId, size: int) -> None:
        heard.append((partition, size, storage.bounds(partition).end))

    storage.subscribe(arrived)
    first, second = idempotent(records, 0, b"a"), append(records, b"b", b"c")
    odd = replace(idempotent(records, 9, b"odd"), required=False)
    commits = [
        storage.commit([first, Refer(log, [run_of(first, 0, 1)]), Put(Space.OFFSETS, b"key", b"value")]),
        storage.commit([second, odd, Trim(records, 1)]),
        storage.commit([idempotent(records, 0, b"a"), Refer(log, [run_of(odd, 0, 1)])]),
    ]
    for commit in commits:
        await commit
    await storage.barrier()
    assert [each[0] for each in heard] == [records, log, records], "no repetition, nothing refused"
    assert [heard[0][1], heard[2][1]] == [first.header.length, second.header.length]
    assert all(end >= seen for (_, _, end), seen in zip(heard, (1, 1, 3), strict=True))


async def test_a_log_that_begins_in_the_middle_of_a_batch(storage: Storage) -> None:
    records, log = await partitions_in(storage)
    made = append(records, b"a", b"b", b"c")
    await storage.commit([made, Refer(log, [run_of(made, 0, 3, 7000)])])
    await storage.commit([Trim(log, 2)])
    assert storage.bounds(log).start == 2
    assert await references_in(storage, log) == [(0, Reference(records, 0, 3, 7000, 30))]


async def test_references_are_there_after_a_crash_with_what_they_refer_to(tmp_path: Path) -> None:
    async with opened(tmp_path / "before", journal_bytes=2000) as storage:
        records, log = await partitions_in(storage)
        for number in range(40):
            made = append(records, b"%d" % number, b"again")
            put = Put(Space.QUEUE_PROGRESS, b"key", b"%d" % number)
            await storage.commit([made, Refer(log, [run_of(made, 0, 2)]), put])
            if number == 20:
                await storage.checkpoint()
        expected = await references_in(storage, log)
        await crash_copy(storage, tmp_path / "after")
    for directory in ("before", "after"):
        async with opened(tmp_path / directory, journal_bytes=2000) as storage:
            assert await references_in(storage, log) == expected
            assert sorted(await read_all(storage, records)) == list(range(80))
            assert storage.take_state(Space.QUEUE_PROGRESS) == {b"key": b"39"}
            made = append(records, b"more")
            await storage.commit([made, Refer(log, [run_of(made, 0, 1)])])
            assert (await references_in(storage, log))[-1] == (80, Reference(records, 80, 1, NEVER, 10))


async def test_a_commit_that_fails_leaves_neither(tmp_path: Path) -> None:
    disk = FaultyDisk()
    storage = file_storage(tmp_path, disk=disk)
    await storage.open()
    records, log = await partitions_in(storage)
    made = append(records, b"kept")
    await storage.commit([made, Refer(log, [run_of(made, 0, 1)])])
    disk.fail("write", "*/journal/*", errno.ENOSPC)
    lost, also_lost = append(records, b"lost"), append(records, b"lost too")
    failing = storage.commit([lost, Refer(log, [run_of(lost, 0, 1)])])
    behind = storage.commit([also_lost, Refer(log, [run_of(also_lost, 0, 1)])])
    for future in (failing, behind):
        with pytest.raises(StorageFull):
            await future
    disk.heal()
    made = append(records, b"later")
    await storage.commit([made, Refer(log, [run_of(made, 0, 1)])])
    assert await references_in(storage, log) == [
        (0, Reference(records, 0, 1, NEVER, 10)),
        (1, Reference(records, 1, 1, NEVER, 10)),
    ]
    assert await read_all(storage, records) == {0: b"kept", 1: b"later"}
    await storage.close()
