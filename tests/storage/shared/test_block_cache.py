"""Blocks of objects in memory: one fetch for all readers, bounded, ahead of a reader."""

import asyncio
from random import Random

import pytest

from posthouse.model.clock import ManualClock
from posthouse.model.errors import StorageClosed
from posthouse.storage.shared.objects.memory import MemoryObjectStore
from posthouse.storage.shared.objects.store import ObjectDamaged, ObjectMissing, ObjectsAway
from posthouse.storage.shared.reads.block_cache import BlockCache
from tests.storage.shared.faulty_objects import Fault, FaultyObjectStore

BLOCK = 100
DATA = Random(1).randbytes(1050)


@pytest.fixture
async def store() -> FaultyObjectStore:
    made = FaultyObjectStore(MemoryObjectStore(ManualClock()))
    for key in "abc":
        await made.put(key, DATA)
    return made


@pytest.fixture
def cache(store: FaultyObjectStore) -> BlockCache:
    """With room for ten blocks, two of them on their way."""
    return BlockCache(store, max_bytes=10 * BLOCK, block_bytes=BLOCK)


async def read(cache: BlockCache, start: int, size: int, *, key: str = "a", ahead: int = 0) -> None:
    assert await cache.read(key, len(DATA), start, size, ahead) == DATA[start : start + size]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_block_is_fetched_once(cache: BlockCache, store: FaultyObjectStore) -> None:
    for start, size in [(0, 10), (90, 10), (0, 100), (50, 1)]:
        await read(cache, start, size)
    assert store.calls["read"] == 1
    assert (cache.metrics.misses, cache.metrics.hits) == (1, 3)
    assert cache.metrics.fetched_bytes == cache.bytes_used == BLOCK


@pytest.mark.parametrize(
    ("start", "size"), [(0, 1050), (99, 2), (0, 101), (950, 100), (1000, 50), (1049, 1), (150, 500), (0, 0)]
)
async def test_reads_of_all_kinds(cache: BlockCache, start: int, size: int) -> None:
    for _ in range(2):
        await read(cache, start, size)


async def test_a_read_of_one_block_copies_nothing(cache: BlockCache) -> None:
    first, again = [await cache.read("a", len(DATA), 10, 20) for _ in range(2)]
    assert isinstance(first, memoryview) and isinstance(again, memoryview)
    assert first.obj is again.obj
    assert first.readonly


@pytest.mark.parametrize(("start", "size"), [(0, 1051), (1050, 1), (-1, 5), (5, -1)])
async def test_a_read_outside_of_the_object(cache: BlockCache, start: int, size: int) -> None:
    with pytest.raises(ObjectDamaged):
        await cache.read("a", len(DATA), start, size)


async def test_readers_at_once_have_one_fetch(cache: BlockCache, store: FaultyObjectStore) -> None:
    store.gate.clear()
    readers = [asyncio.create_task(read(cache, start, 5)) for start in range(50)]
    await settle()
    store.gate.set()
    await asyncio.gather(*readers)
    assert store.calls["read"] == 1


async def test_a_cancelled_reader_does_not_harm_others(cache: BlockCache, store: FaultyObjectStore) -> None:
    store.gate.clear()
    readers = [asyncio.create_task(read(cache, 0, 5)) for _ in range(3)]
    await settle()
    readers[0].cancel()  # the one that began the fetch
    await settle()
    assert readers[0].cancelled()
    store.gate.set()
    await asyncio.gather(*readers[1:])
    assert store.calls["read"] == 1


async def test_a_fetch_without_readers_is_kept(cache: BlockCache, store: FaultyObjectStore) -> None:
    store.gate.clear()
    reader = asyncio.create_task(read(cache, 0, 5))
    await settle()
    reader.cancel()
    store.gate.set()
    await settle()
    await read(cache, 0, 5)
    assert store.calls["read"] == 1


@pytest.mark.parametrize(
    ("fault", "error"),
    [(Fault.FAIL, ObjectsAway), (Fault.MISSING, ObjectMissing), (Fault.TRUNCATE, ObjectDamaged)],
)
async def test_all_readers_have_the_error_of_a_fetch(
    cache: BlockCache, store: FaultyObjectStore, fault: Fault, error: type[Exception]
) -> None:
    store.fail(fault, "read")
    results = await asyncio.gather(*(cache.read("a", 1050, 0, 5) for _ in range(5)), return_exceptions=True)
    assert [type(each) for each in results] == [error] * 5
    assert cache.bytes_used == 0
    await read(cache, 0, 5)
    assert store.calls["read"] == 2


async def test_the_least_recently_used_block_is_evicted(cache: BlockCache, store: FaultyObjectStore) -> None:
    for number in range(10):
        await read(cache, number * BLOCK, 1)
    await read(cache, 0, 1)  # block 0 is now the most recently used one
    await read(cache, 0, 1, key="b")
    assert cache.metrics.evictions == 1
    store.calls.clear()
    await read(cache, 0, 1)
    assert store.calls["read"] == 0
    await read(cache, BLOCK, 1)
    assert store.calls["read"] == 1


async def test_memory_is_bounded_while_blocks_are_fetched(store: FaultyObjectStore) -> None:
    cache = BlockCache(store, max_bytes=8 * BLOCK, block_bytes=BLOCK)
    for number in range(8):
        await read(cache, number * BLOCK, 1)
    store.calls.clear()
    store.gate.clear()
    readers = [asyncio.create_task(read(cache, number * BLOCK, 5, key="b")) for number in range(10)]
    await settle()
    assert store.calls["read"] == 2
    assert cache.bytes_used == 8 * BLOCK
    store.gate.set()
    await asyncio.gather(*readers)
    assert cache.bytes_used <= 8 * BLOCK


async def test_a_cache_of_one_block(store: FaultyObjectStore) -> None:
    cache = BlockCache(store, max_bytes=BLOCK, block_bytes=BLOCK)
    await asyncio.gather(*(read(cache, start, 300, key=key) for start in (0, 50, 750) for key in "abc"))
    assert cache.bytes_used <= BLOCK
    with pytest.raises(ValueError, match="room for one block"):
        BlockCache(store, max_bytes=BLOCK - 1, block_bytes=BLOCK)


async def test_reading_ahead(cache: BlockCache, store: FaultyObjectStore) -> None:
    await read(cache, 0, 10, ahead=1)
    await settle()
    assert store.calls["read"] == 2
    assert cache.metrics.ahead_reads == 1
    await read(cache, BLOCK, 10, ahead=1)
    await settle()
    assert store.calls["read"] == 3
    assert (cache.metrics.misses, cache.metrics.hits) == (1, 1)
    assert (cache.metrics.ahead_reads, cache.metrics.ahead_hits) == (2, 1)


async def test_expected_bytes_are_fetched_before_they_are_read(
    cache: BlockCache, store: FaultyObjectStore
) -> None:
    cache.expect("a", len(DATA), BLOCK - 10, 20)
    await settle()
    assert store.calls["read"] == 2
    await read(cache, BLOCK - 10, 20)
    assert store.calls["read"] == 2
    assert (cache.metrics.misses, cache.metrics.ahead_hits) == (0, 2)


async def test_what_cannot_be_expected_is_left_to_the_read(
    cache: BlockCache, store: FaultyObjectStore
) -> None:
    cache.expect("a", len(DATA), 0, len(DATA) + 1)
    cache.expect("a", len(DATA), 0, 0)
    await cache.close()
    cache.expect("a", len(DATA), 0, 10)
    await settle()
    assert store.calls["read"] == 0


async def test_reading_ahead_ends_with_the_object(cache: BlockCache, store: FaultyObjectStore) -> None:
    await read(cache, 1000, 50, ahead=2)
    await settle()
    assert store.calls["read"] == 1


async def test_reading_ahead_lets_no_reader_wait(cache: BlockCache, store: FaultyObjectStore) -> None:
    store.gate.clear()
    readers = [asyncio.create_task(read(cache, 0, 10, key=key, ahead=5)) for key in "ab"]
    await settle()
    assert store.calls["read"] == 2
    # Reading ahead has taken the second place; the reader is next.
    assert cache.metrics.ahead_reads == 1
    store.gate.set()
    await asyncio.gather(*readers)


async def test_a_failure_of_reading_ahead_is_no_readers(cache: BlockCache, store: FaultyObjectStore) -> None:
    store.fail(Fault.FAIL, "read", after=1)
    await read(cache, 0, 10, ahead=1)
    await settle()
    assert store.faults[Fault.FAIL] == 1
    await read(cache, BLOCK, 10)
    assert cache.metrics.ahead_hits == 0


async def test_a_large_read_fetches_the_next_block_meanwhile(
    cache: BlockCache, store: FaultyObjectStore
) -> None:
    store.gate.clear()
    reader = asyncio.create_task(read(cache, 50, 100))
    await settle()
    assert store.calls["read"] == 2
    store.gate.set()
    await reader
    assert store.calls["read"] == 2


async def test_a_forgotten_object(cache: BlockCache, store: FaultyObjectStore) -> None:
    await read(cache, 0, 300)
    await read(cache, 0, 100, key="b")
    cache.forget("a")
    cache.forget("never")
    assert cache.bytes_used == BLOCK
    store.calls.clear()
    await read(cache, 0, 100, key="b")
    assert store.calls["read"] == 0
    await read(cache, 0, 100)
    assert store.calls["read"] == 1


async def test_an_object_that_is_forgotten_while_it_is_fetched(
    cache: BlockCache, store: FaultyObjectStore
) -> None:
    store.gate.clear()
    reader = asyncio.create_task(read(cache, 0, 10))
    await settle()
    cache.forget("a")
    store.gate.set()
    await reader
    assert cache.bytes_used == 0


async def test_readers_of_a_closed_cache(cache: BlockCache, store: FaultyObjectStore) -> None:
    store.gate.clear()
    waiting = asyncio.create_task(read(cache, 0, 10))
    cancelled = asyncio.create_task(read(cache, 0, 10))
    forgotten = asyncio.create_task(read(cache, 0, 10, key="b"))
    await settle()
    cache.forget("b")
    cancelled.cancel()
    await cache.close()
    for each in (waiting, forgotten):
        with pytest.raises(StorageClosed):
            await each
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    with pytest.raises(StorageClosed):
        await read(cache, 0, 10)
    assert cache.bytes_used == 0
