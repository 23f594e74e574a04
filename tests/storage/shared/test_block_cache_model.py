"""A block cache against plain bytes: reads at once, faults, cancelled readers, forgotten objects."""

import asyncio
import contextlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from posthouse.model.clock import ManualClock
from posthouse.model.errors import Unavailable
from posthouse.storage.shared.objects.memory import MemoryObjectStore
from posthouse.storage.shared.reads.block_cache import BlockCache
from posthouse.storage.shared.reads.block_files import BlockFiles
from posthouse.storage.shared.reads.disk_cache import DiskCache
from tests.directories import IN_MEMORY
from tests.examples import examples
from tests.storage.shared.faulty_objects import Fault, FaultyObjectStore

SIZES = {"a": 1, "b": 64, "c": 65, "d": 1000, "e": 333}
OBJECTS = {key: Random(key).randbytes(size) for key, size in SIZES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    key: str
    start: int
    size: int
    ahead: int
    is_cancelled: bool


@st.composite
def reads(draw: st.DrawFn) -> Read:
    key = draw(st.sampled_from(sorted(SIZES)))
    start = draw(st.integers(0, SIZES[key]))
    return Read(
        key=key,
        start=start,
        size=draw(st.integers(0, SIZES[key] - start)),
        ahead=draw(st.integers(0, 3)),
        is_cancelled=draw(st.integers(0, 5)) == 0,
    )


Step = list[Read] | str
"""Reads at once, or the key of an object to forget."""
steps = st.lists(st.lists(reads(), min_size=1, max_size=6) | st.sampled_from(sorted(SIZES)), max_size=8)


async def check(cache: BlockCache, store: FaultyObjectStore, max_bytes: int, steps: list[Step]) -> None:
    async def one(read: Read) -> None:
        with contextlib.suppress(Unavailable):
            found = await cache.read(read.key, SIZES[read.key], read.start, read.size, read.ahead)
            assert found == OBJECTS[read.key][read.start : read.start + read.size]
        assert cache.bytes_used <= max_bytes

    for step in steps:
        if isinstance(step, str):
            cache.forget(step)
            continue
        tasks = [asyncio.create_task(one(read)) for read in step]
        await asyncio.sleep(0)
        for task, read in zip(tasks, step, strict=True):
            if read.is_cancelled:
                task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert result is None or isinstance(result, asyncio.CancelledError), result
        assert cache.bytes_used <= max_bytes
    # Nothing is left of faults and cancelled readers: every byte can be read.
    store.heal()
    for key, data in OBJECTS.items():
        assert await cache.read(key, len(data), 0, len(data)) == data
    await cache.close()


async def filled(seed: int) -> FaultyObjectStore:
    inner = MemoryObjectStore(ManualClock())
    for key, data in OBJECTS.items():
        await inner.put(key, data)
    rates = {Fault.FAIL: 0.15, Fault.DELAY: 0.3, Fault.MISSING: 0.05}
    return FaultyObjectStore(inner, random=Random(seed), rates=rates, delay_seconds=0)


@given(
    steps=steps, seed=st.integers(0, 2**32), block_bytes=st.integers(1, 100), more_bytes=st.integers(0, 1000)
)
def test_against_plain_bytes(steps: list[Step], seed: int, block_bytes: int, more_bytes: int) -> None:
    async def run() -> None:
        store = await filled(seed)
        max_bytes = block_bytes + more_bytes
        cache = BlockCache(store, max_bytes=max_bytes, block_bytes=block_bytes)
        await check(cache, store, max_bytes, steps)

    asyncio.run(run())


@settings(max_examples=examples(40))
@given(steps=steps, seed=st.integers(0, 2**32), disk_bytes=st.integers(0, 1000))
def test_with_a_disk_below(steps: list[Step], seed: int, disk_bytes: int) -> None:
    async def run(directory: Path) -> None:
        for _life in range(2):
            store = await filled(seed)
            disk = DiskCache(BlockFiles(directory), max_bytes=disk_bytes)
            await disk.open()
            cache = BlockCache(store, max_bytes=200, block_bytes=50, disk=disk)
            await check(cache, store, 200, steps)
            await disk.close()
            assert sum(each.stat().st_size for each in directory.iterdir()) == disk.bytes_used <= disk_bytes

    with tempfile.TemporaryDirectory(dir=IN_MEMORY, prefix="posthouse-") as place:
        asyncio.run(run(Path(place)))
