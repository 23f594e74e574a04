"""Large batches and backlogs of the inline path are uploaded, unless the object store does not answer
soon."""

import asyncio

import pytest

from posthouse.model.clock import ManualClock
from posthouse.model.ids import PartitionId
from posthouse.storage.shared.commits import payloads
from posthouse.storage.shared.engine import SharedStorage
from tests.storage.batches import append
from tests.storage.shared.faulty_objects import Fault, FaultyObjectStore
from tests.storage.shared.test_committer import partitions_in

LARGE = bytes(600 * 1024)


@pytest.fixture
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    assert payloads._OPTIONAL_SECONDS <= 1
    monkeypatch.setattr(payloads, "_OPTIONAL_SECONDS", 0.05)


async def commit_large(storage: SharedStorage, partition: PartitionId) -> None:
    """With a small commit behind it."""
    large, small = (storage.commit([append(partition, value)]) for value in (LARGE, b"small"))
    await asyncio.wait_for(asyncio.gather(large, small), 5)


async def test_a_backlog_that_the_database_keeps_up_with_stays_inline(
    shared: SharedStorage, objects: FaultyObjectStore
) -> None:
    """It is more than one group. An upload takes longer than a call, and more would wait after it: then all
    later groups were uploaded, too."""
    _, fast = await partitions_in(shared)
    await asyncio.gather(*(shared.commit([append(fast, bytes(100 * 1024))]) for _ in range(19)))
    assert objects.calls["put"] == 0
    assert shared.metrics.commits_per_sync.count == 4
    await asyncio.gather(*(shared.commit([append(fast, bytes(100 * 1024))]) for _ in range(21)))
    assert objects.calls["put"] == 1


async def test_small_commits_before_a_large_batch_stay_inline(
    shared: SharedStorage, objects: FaultyObjectStore
) -> None:
    _, fast = await partitions_in(shared)
    small, large = shared.commit([append(fast, b"small")]), shared.commit([append(fast, LARGE)])
    assert [answer[0].base_offset for answer in await asyncio.gather(small, large)] == [0, 1]
    assert objects.calls["put"] == 1
    assert shared.metrics.commits_per_sync.count == 2


@pytest.mark.usefixtures("short_wait")
async def test_a_slow_object_store_holds_up_large_groups_briefly_and_seldom(
    shared: SharedStorage, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    _, fast = await partitions_in(shared)
    objects.gate.clear()
    await commit_large(shared, fast)
    assert objects.calls["put"] == 1
    rests = []
    for attempt in range(2, 8):
        begun = clock.monotonic()
        while objects.calls["put"] < attempt:
            await commit_large(shared, fast)
            clock.advance(2.5)
        rests.append(clock.monotonic() - begun)
    assert rests == sorted(rests) and rests[0] <= 10 and 55 <= rests[-1] <= 70
    assert shared._uploads.pending == set()
    objects.gate.set()
    clock.advance(60)
    for _ in range(2):
        await commit_large(shared, fast)
    assert objects.calls["put"] == 9, "it is well again"


async def test_a_failing_object_store_is_left_alone_for_a_while(
    shared: SharedStorage, objects: FaultyObjectStore, clock: ManualClock
) -> None:
    _, fast = await partitions_in(shared)
    objects.fail(Fault.FAIL, "put", for_ever=True)
    for _ in range(3):
        await commit_large(shared, fast)
    assert objects.calls["put"] == 1
    clock.advance(5)
    await commit_large(shared, fast)
    clock.advance(5)
    await commit_large(shared, fast)
    assert objects.calls["put"] == 2, "the second rest is longer"
