"""What the file storage counts: syncs, journal, checkpoints."""

import asyncio
from pathlib import Path

from posthouse.model.clock import SystemClock
from posthouse.storage.files.engine import FileStorage
from tests.storage.batches import append
from tests.storage.partitions import partition_in


async def test_syncs_journal_and_checkpoints_are_counted(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path, clock=SystemClock())
    await storage.open()
    partition = await partition_in(storage)
    metrics = storage.metrics
    batches = [append(partition, b"x" * 1000) for _ in range(10)]
    await asyncio.gather(*(storage.commit([each]) for each in batches))
    assert metrics.commits_per_sync.sum == 10
    assert 1 <= metrics.sync_seconds.count == metrics.commits_per_sync.count < 10  # group commit
    assert metrics.journal_bytes > 10_000
    before = metrics.checkpoint_seconds.count
    await storage.checkpoint()
    assert metrics.checkpoint_seconds.count == before + 1
    assert metrics.checkpoint_failures == 0
    await storage.close()
