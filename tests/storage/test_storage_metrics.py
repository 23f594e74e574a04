"""What every storage counts of its own work."""

from posthouse.model.clock import ManualClock
from posthouse.storage.contract import Storage
from tests.storage.batches import append
from tests.storage.partitions import partition_in


async def test_commits_are_counted(storage: Storage) -> None:
    partition = await partition_in(storage)
    before = storage.metrics.commits_per_sync.count
    for number in range(5):
        await storage.commit([append(partition, b"%d" % number)])
    assert storage.metrics.commits_per_sync.count - before == 5
    assert storage.metrics.commits_per_sync.sum >= 5


async def test_what_retention_removes_is_counted(storage: Storage, clock: ManualClock) -> None:
    partition = await partition_in(storage, retention_ms="1000", segment_bytes="100")
    for number in range(5):
        await storage.commit([append(partition, b"%d" % number, timestamps=[clock.now_ms()])])
    await storage.enforce_retention()
    assert (storage.metrics.retention_runs, storage.metrics.retention_records) == (1, 0)
    clock.advance(10)
    await storage.enforce_retention()
    removed = storage.bounds(partition).start
    assert removed > 0
    assert (storage.metrics.retention_runs, storage.metrics.retention_records) == (2, removed)
