"""What every storage promises to keep and to let go."""

import asyncio

import pytest

from posthouse.model.clock import ManualClock
from posthouse.storage.bounds import Bounds
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Trim
from posthouse.storage.outcomes import Outcome
from tests.storage.batches import append, read_all
from tests.storage.partitions import partition_in


async def test_trimming_moves_the_start_and_never_back(storage: Storage) -> None:
    partition = await partition_in(storage)
    for number in range(20):
        await storage.commit([append(partition, b"%d" % number)])
    size = storage.size(partition)
    for wanted, start in ((5, 5), (3, 5), (0, 5), (12, 12), (1000, 20)):
        [outcome] = await storage.commit([Trim(partition, wanted)])
        assert outcome.log_start == start
        assert storage.bounds(partition) == Bounds(start, 20, 20)
        assert await read_all(storage, partition) == {n: b"%d" % n for n in range(start, 20)}
        assert storage.size(partition) <= size
    assert storage.size(partition) == 0
    [outcome] = await storage.commit([append(partition, b"20")])
    assert outcome == Outcome(20, 20)
    assert await read_all(storage, partition) == {20: b"20"}


async def test_a_trim_leaves_alone_what_is_committed_behind_it(storage: Storage) -> None:
    """Segments roll while the trim is on its way: what is being written must survive it."""
    partition = await partition_in(storage, segment_bytes="200")
    await storage.commit([append(partition, b"old")])
    pending = [storage.commit([append(partition, b"old 1")]), storage.commit([Trim(partition, 10**9)])]
    await asyncio.sleep(0)
    pending += [storage.commit([append(partition, b"x" * 150)]) for _ in range(8)]
    await asyncio.gather(*pending)
    assert storage.bounds(partition) == Bounds(2, 10, 10)
    assert await read_all(storage, partition) == dict.fromkeys(range(2, 10), b"x" * 150)


async def test_retention_by_time_keeps_what_is_young_enough(storage: Storage, clock: ManualClock) -> None:
    partition = await partition_in(storage, retention_ms="60000", segment_bytes="100")
    for number in range(10):
        await storage.commit([append(partition, b"%d" % number, timestamps=[clock.now_ms()])])
        clock.advance(10)
    await storage.enforce_retention()
    assert storage.bounds(partition) == Bounds(4, 10, 10)
    assert await read_all(storage, partition) == {n: b"%d" % n for n in range(4, 10)}
    clock.advance(3600)
    await storage.enforce_retention()
    assert storage.bounds(partition) == Bounds(10, 10, 10)
    [outcome] = await storage.commit([append(partition, b"next")])
    assert outcome.base_offset == 10


async def test_retention_counts_from_arrival_where_records_have_no_time(
    storage: Storage, clock: ManualClock
) -> None:
    partition = await partition_in(storage, retention_ms="60000")
    await storage.commit([append(partition, b"timeless", timestamps=[-1])])
    await storage.enforce_retention()
    assert storage.bounds(partition) == Bounds(0, 1, 1)
    clock.advance(61)
    await storage.enforce_retention()
    assert storage.bounds(partition) == Bounds(1, 1, 1)


async def test_retention_by_size_keeps_at_least_that_much(storage: Storage) -> None:
    partition = await partition_in(storage, retention_ms="-1", retention_bytes="1000", segment_bytes="300")
    for number in range(40):
        await storage.commit([append(partition, b"%3d" % number)])
    await storage.enforce_retention()
    assert 1000 <= storage.size(partition) < 1400
    start = storage.bounds(partition).start
    assert await read_all(storage, partition) == {n: b"%3d" % n for n in range(start, 40)}


async def test_without_limits_retention_keeps_everything(storage: Storage, clock: ManualClock) -> None:
    partition = await partition_in(storage, retention_ms="-1", retention_bytes="-1")
    for _ in range(10):
        await storage.commit([append(partition, b"value")])
    clock.advance(10**9)
    await storage.enforce_retention()
    assert storage.bounds(partition) == Bounds(0, 10, 10)


@pytest.mark.parametrize("limit", [{"retention_local_ms": "1000"}, {"retention_local_bytes": "0"}])
async def test_local_retention_lets_go_of_what_is_archived_alone(
    storage: Storage, clock: ManualClock, limit: dict[str, str]
) -> None:
    partition = await partition_in(storage, retention_ms="-1", segment_bytes="100", **limit)
    for number in range(10):
        await storage.commit([append(partition, b"%d" % number, timestamps=[clock.now_ms()])])
    clock.advance(3600)
    await storage.enforce_retention()
    assert storage.bounds(partition) == Bounds(0, 10, 10), "nothing is archived"
    for archived in (4, 4, 2, 7):
        await storage.enforce_retention({partition: archived}.__getitem__)
        assert storage.bounds(partition).start == max(4, archived)
    assert await read_all(storage, partition) == {n: b"%d" % n for n in range(7, 10)}
    await storage.enforce_retention({partition: 11}.__getitem__)
    assert storage.bounds(partition).start == 7, "nobody can have archived what is yet to come"
    await storage.enforce_retention({partition: 10}.__getitem__)
    assert storage.bounds(partition) == Bounds(9, 10, 10), "the last segment is not closed"


async def test_local_retention_by_time_keeps_what_is_young_enough(
    storage: Storage, clock: ManualClock
) -> None:
    partition = await partition_in(
        storage, retention_ms="-1", retention_local_ms="60000", segment_bytes="100"
    )
    for number in range(10):
        await storage.commit([append(partition, b"%d" % number, timestamps=[clock.now_ms()])])
        clock.advance(10)
    await storage.enforce_retention(lambda partition: 10)
    assert storage.bounds(partition) == Bounds(4, 10, 10), "the others are younger than a minute"


async def test_local_retention_by_size_keeps_at_least_that_much(storage: Storage) -> None:
    partition = await partition_in(
        storage, retention_ms="-1", retention_local_bytes="500", segment_bytes="100"
    )
    for number in range(10):
        await storage.commit([append(partition, b"%d" % number)])
    each = storage.size(partition) // 10
    await storage.enforce_retention(lambda partition: 10)
    assert 500 <= storage.size(partition) < 500 + each


async def test_local_retention_waits_for_segments_that_are_archived_as_a_whole(storage: Storage) -> None:
    partition = await partition_in(storage, retention_ms="-1", retention_local_bytes="0", segment_bytes="100")
    for _ in range(4):
        await storage.commit([append(partition, b"a", b"b", b"c")])
    await storage.enforce_retention(lambda partition: 5)
    assert storage.bounds(partition) == Bounds(3, 12, 12)


async def test_retention_keeps_what_is_needed(storage: Storage, clock: ManualClock) -> None:
    partition = await partition_in(storage, retention_ms="60000", segment_bytes="100")
    for number in range(10):
        await storage.commit([append(partition, b"%d" % number, timestamps=[clock.now_ms()])])
        clock.advance(10)
    for needed, start in ((0, 0), (2, 2), (1, 2)):
        assert await storage.enforce_retention(needed={partition: needed}.get) == {partition: 4}
        assert storage.bounds(partition).start == start
    assert await storage.enforce_retention(needed={partition: 7}.get) == {}
    assert storage.bounds(partition) == Bounds(4, 10, 10), "what is not needed stays as long as ever"
    clock.advance(3600)
    assert await storage.enforce_retention(needed={partition: 9}.get) == {partition: 10}
    assert await read_all(storage, partition) == {9: b"9"}
    assert await storage.enforce_retention(needed={partition: None}.get) == {}
    assert storage.bounds(partition) == Bounds(10, 10, 10)


async def test_retention_by_size_keeps_what_is_needed(storage: Storage) -> None:
    partition = await partition_in(storage, retention_ms="-1", retention_bytes="0", segment_bytes="100")
    for number in range(10):
        await storage.commit([append(partition, b"%d" % number)])
    held_back = await storage.enforce_retention(needed=lambda partition: 3)
    assert storage.bounds(partition) == Bounds(3, 10, 10)
    assert held_back[partition] >= 9


async def test_retention_waits_for_segments_of_which_nothing_is_needed(storage: Storage) -> None:
    partition = await partition_in(storage, retention_ms="-1", retention_bytes="0", segment_bytes="100")
    for _ in range(4):
        await storage.commit([append(partition, b"a", b"b", b"c")])
    await storage.enforce_retention(needed=lambda partition: 5)
    assert storage.bounds(partition) == Bounds(3, 12, 12)


async def test_what_is_needed_is_not_archived_away(storage: Storage) -> None:
    partition = await partition_in(storage, retention_ms="-1", retention_local_bytes="0", segment_bytes="100")
    for number in range(6):
        await storage.commit([append(partition, b"%d" % number)])
    assert await storage.enforce_retention(lambda partition: 5, lambda partition: 2) == {partition: 5}
    assert storage.bounds(partition).start == 2


async def test_local_retention_leaves_compacted_topics_alone(storage: Storage) -> None:
    partition = await partition_in(
        storage, retention_local_bytes="0", segment_bytes="100", cleanup_policy="compact"
    )
    for number in range(4):
        await storage.commit([append(partition, b"%d" % number)])
    await storage.enforce_retention(lambda partition: 4)
    assert storage.bounds(partition) == Bounds(0, 4, 4)
