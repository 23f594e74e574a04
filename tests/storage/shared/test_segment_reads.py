"""Reads of segments, window by window."""

import pytest

from posthouse.model.clock import ManualClock
from posthouse.records.batch import iter_headers, parse_header
from posthouse.records.builder import BatchBuilder
from posthouse.storage.operations import Append
from posthouse.storage.shared.database import Database
from posthouse.storage.shared.objects.store import ObjectStore
from posthouse.storage.shared.reads import piece_reader
from tests.storage.batches import make_topic
from tests.storage.shared.opened import make_shared


async def test_no_batch_comes_twice_though_the_index_does_not_know_every_batch(
    database: Database, objects: ObjectStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = await make_shared(database, objects, clock, tail_bytes=0)
    await shared.open()
    monkeypatch.setattr(piece_reader, "_WINDOW_BYTES", 300)
    topic = make_topic(
        cleanup_policy="compact",
        segment_bytes="100000",
        index_interval_bytes="4096",
        min_cleanable_dirty_ratio="0",
    )
    await shared.create_topics([topic])
    partition = topic.partition(0)
    for number in range(60):
        builder = BatchBuilder()
        builder.add(b"key %d" % number, b"x" * 40, (), 1000)
        batch = memoryview(builder.build())
        await shared.commit([Append(partition, batch, parse_header(batch))])
    await shared.compact()  # which makes segments first
    for start in (0, 1, 31):
        for max_bytes in (100, 1000, 100_000):
            data = (await shared.read(partition, start, max_bytes)).data
            bases = [header.base_offset for _, header in iter_headers(data)]
            assert bases == list(range(start, start + len(bases)))
    assert len(bases) == 29
    await shared.close()
