"""Memory that is counted is all the memory that is used: tails, and windows of segments. Logs that are quiet
need little."""

import tracemalloc

import pytest

from posthouse.storage.shared.logs.shared_log import SharedLog, TailBatch, Tails
from posthouse.storage.shared.readers import Readers
from posthouse.storage.shared.reads.block_cache import BlockCache
from posthouse.storage.shared.reads.piece_reader import PieceReader
from posthouse.storage.shared.reads.segment_indexes import SegmentIndexes
from tests.storage.batches import append, make_batch, make_topic
from tests.storage.shared.shared_logs import SharedLogs
from tests.storage.shared.test_consolidation import consolidation


def tail_batch(log: SharedLog, value: bytes) -> TailBatch:
    made = append(log.partition, value)
    return TailBatch(made.batch, made.header._replace(base_offset=log.end))


def test_a_quiet_log_takes_little_memory() -> None:
    """A broker knows 100,000 of them: 2 KiB for each would be 200 MiB."""
    logs, partitions = [], list(make_topic(partitions=1000).partition_ids())
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number, partition in enumerate(partitions):
            logs.append(SharedLog(number, partition, "orders"))
            logs[-1].observe(0, 10_000, 1_000_000, None)
            assert logs[-1].known_producers() == {}
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / len(logs) < 400


def test_a_log_whose_batches_are_dropped_is_as_small_as_before() -> None:
    [log] = (SharedLog(1, each, "orders") for each in make_topic(partitions=1).partition_ids())
    tails = Tails(2**20)
    tails.add(log, tail_batch(log, b"x"))
    assert (log.tail_start, log.tail_end) == (0, 1)
    tails.forget_below(log, 1)
    assert log._batches is None
    assert (log.tail_start, log.tail_end, list(log.tail_from(1))) == (1, 1, [])


def test_a_batch_in_memory_keeps_little_more_than_its_own_bytes() -> None:
    """That of a large request is not copied; a part of a request would keep the whole request."""
    [partition] = make_topic(partitions=1).partition_ids()
    made = append(partition, bytes(100_000))
    request = memoryview(bytearray(100) + made.batch)
    assert TailBatch(request[100:], made.header).data.obj is request.obj  # type: ignore[union-attr]
    with pytest.raises(TypeError, match="read-only"):
        TailBatch(request[100:], made.header).data[0] = 1  # type: ignore[index]
    large = memoryview(bytearray(50_000) + made.batch)
    small = append(partition, b"x")
    for batch, header in ((large[50_000:], made.header), (small.batch, small.header)):
        kept = TailBatch(batch, header).data
        assert isinstance(kept, bytes) and kept == batch


def test_tails_keep_nothing_of_forgotten_batches() -> None:
    """Also behind a batch of a quiet log that stays: compaction forgets those of a busy one."""
    topic = make_topic(partitions=2)
    quiet, busy = (SharedLog(each.index, each, str(each)) for each in topic.partition_ids())
    tails = Tails(2**20)
    tails.add(quiet, tail_batch(quiet, b"stays"))
    stays = tails.bytes
    for _ in range(50):
        for _ in range(100):
            tails.add(busy, tail_batch(busy, b"x"))
        tails.forget_below(busy, busy.end)
    assert tails.bytes == stays
    assert len(tails._order) <= 1100
    assert all(isinstance(base, int) for _, base in tails._order), "no batch is held"
    assert [batch.header.base_offset for batch in quiet.tail_from(0)] == [0]


def test_tails_drop_the_oldest_first_also_after_some_were_forgotten() -> None:
    topic = make_topic(partitions=2)
    first, second = (SharedLog(each.index, each, str(each)) for each in topic.partition_ids())
    size = tail_batch(first, b"x").header.length
    tails = Tails(4 * size)
    for log in (first, second, first, second):
        tails.add(log, tail_batch(log, b"x"))
    tails.forget_below(first, 1)
    tails.add(second, tail_batch(second, b"x"))
    assert (first.tail_start, second.tail_start, tails.bytes) == (1, 0, 4 * size)
    tails.add(second, tail_batch(second, b"x"))
    assert (first.tail_start, second.tail_start, tails.bytes) == (1, 1, 4 * size)


async def test_windows_of_segments_do_not_keep_whole_blocks(logs: SharedLogs) -> None:
    """A small segment of a mixed object lies in a block of megabytes."""
    [small, large] = await logs.create(partitions=2)
    await logs.append(small, make_batch(b"x"))
    await logs.append(large, make_batch(bytes(100_000)))
    await consolidation(logs).run_once()
    [segment] = await logs.segments(small)
    assert segment.object_size > 100_000
    blocks = BlockCache(logs.objects, max_bytes=2**24)  # type: ignore[arg-type]  # it is only read from
    readers = Readers(logs.database)
    reader = PieceReader(readers, SegmentIndexes(readers), blocks, cache_bytes=2**20)
    log = SharedLog(small, await logs.partition_of(small), "small")
    chunk = await reader.chunk(log, segment, 0)
    assert chunk is not None
    assert not isinstance(chunk.data, memoryview)
    assert reader._cached_bytes == len(chunk.data) < 1000
    await readers.close()
    await blocks.close()
