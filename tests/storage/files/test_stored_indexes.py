"""An index file may know less of a segment than the catalog: the rest is found, and is no damage."""

from pathlib import Path

import pytest

from posthouse.storage.files.commits import checkpoint
from tests.alarms import alarms
from tests.storage.batches import append, make_topic, read_all
from tests.storage.stores import opened


async def test_what_came_after_the_stored_index_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic(segment_bytes="100000", index_interval_bytes="200")
    partition = topic.partition(0)
    values = [b"%d" % number * 40 for number in range(20)]
    async with opened(tmp_path) as storage:
        await storage.create_topics([topic])
        monkeypatch.setattr(checkpoint, "INDEX_STRIDE", 1)
        for value in values[:10]:
            await storage.commit([append(partition, value)])
        await storage.checkpoint()
        monkeypatch.undo()
        for value in values[10:]:  # too little for another block of the index
            await storage.commit([append(partition, value)])
    async with opened(tmp_path) as storage:
        for first in range(len(values)):
            found = await read_all(storage, partition, first)
            assert [found[offset] for offset in range(first, len(values))] == values[first:]
    assert alarms(caplog) == []
