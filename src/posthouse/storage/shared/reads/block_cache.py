"""Blocks of objects in memory: each is fetched once, however many readers ask for it at the same time.

Objects never change, so a block is valid for as long as it is kept. A block begins at a multiple of the block
size; the last one of an object is shorter. Cached blocks and blocks that are being fetched together have no
more than `max_bytes`; what readers still hold of evicted blocks is theirs.
"""

import asyncio
import logging
from collections import OrderedDict, defaultdict
from typing import TypeAlias

from posthouse.model.errors import StorageClosed
from posthouse.storage.shared.objects.store import ObjectDamaged, ObjectStore
from posthouse.storage.shared.reads.disk_cache import DiskCache

log = logging.getLogger(__name__)

BLOCK_BYTES = 4 * 1024 * 1024

_Block: TypeAlias = tuple[str, int]
"""The key of the object, and the number of the block in it."""


class BlockCacheMetrics:
    __slots__ = (
        "ahead_hits",
        "ahead_reads",
        "disk_hits",
        "evictions",
        "fetched_bytes",
        "fetches",
        "hits",
        "misses",
    )

    def __init__(self) -> None:
        self.hits = 0
        """Blocks that were in memory when a reader needed them."""
        self.misses = 0
        """Blocks that a reader had to wait for."""
        self.disk_hits = 0
        """Blocks that came from the disk cache."""
        self.fetches = 0
        """Blocks that came from the object store."""
        self.fetched_bytes = 0
        self.ahead_reads = 0
        """Blocks that were read before any reader needed them."""
        self.ahead_hits = 0
        """Those of them that a reader needed later."""
        self.evictions = 0


class BlockCache:
    def __init__(
        self,
        store: ObjectStore,
        *,
        max_bytes: int,
        block_bytes: int = BLOCK_BYTES,
        disk: DiskCache | None = None,
    ) -> None:
        """`max_bytes` is at least one block. The caller opens and closes `store` and `disk`."""
        if not 0 < block_bytes <= max_bytes:
            raise ValueError("a block cache needs room for one block")
        self._store = store
        self._disk = disk
        self._max_bytes = max_bytes
        self._block_bytes = block_bytes
        # Most of the memory stays for blocks that are there.
        self._most_fetches = max(1, max_bytes // 4 // block_bytes)
        self._permits = asyncio.Semaphore(self._most_fetches)
        self._blocks: OrderedDict[_Block, bytes | memoryview] = OrderedDict()
        """The most recently used one is the last."""
        self._numbers: defaultdict[str, set[int]] = defaultdict(set)
        """Of the blocks in memory, by key."""
        self._bytes = 0
        self._fetching: dict[_Block, asyncio.Task[bytes | memoryview]] = {}
        self._fetches: set[asyncio.Task[bytes | memoryview]] = set()
        """Those in `_fetching`, and those of blocks that were forgotten meanwhile."""
        self._fetching_bytes = 0
        self._unused_ahead: set[_Block] = set()
        self._is_closed = False
        self.metrics = BlockCacheMetrics()

    @property
    def bytes_used(self) -> int:
        """In memory or being fetched."""
        return self._bytes + self._fetching_bytes

    async def read(
        self, key: str, object_size: int, start: int, size: int, ahead: int = 0
    ) -> bytes | memoryview:
        """`size` bytes from `start` of an object that has `object_size` bytes.

        The result may be a part of a whole block, which stays in memory as long as the result does: a caller
        that keeps it for long copies it. `ahead` blocks behind the last one are fetched in the background.
        Raises what the store raises.
        """
        if start < 0 or size < 0 or start + size > object_size:
            raise ObjectDamaged(f"object {key} of {object_size} bytes has no {size} bytes from {start}")
        if not size:
            return b""
        first, last = start // self._block_bytes, (start + size - 1) // self._block_bytes
        if first != last:
            return await self._read_several(key, object_size, start, size, ahead)
        block = self._cached((key, first))
        if block is None:
            fetch = self._fetch_of(key, object_size, first)
            if ahead:
                self._read_ahead(key, object_size, last + 1, ahead)
            block = await self._fetched(fetch)
        elif ahead:
            self._read_ahead(key, object_size, last + 1, ahead)
        if size == len(block):
            return block
        start -= first * self._block_bytes
        return memoryview(block)[start : start + size]

    def expect(self, key: str, object_size: int, start: int, size: int) -> None:
        """Fetch these bytes in the background, if there is room: they will be read soon."""
        if size and start >= 0 and start + size <= object_size and not self._is_closed:
            first, last = start // self._block_bytes, (start + size - 1) // self._block_bytes
            self._read_ahead(key, object_size, first, last - first + 1)

    def forget(self, key: str) -> None:
        """Drop the blocks of an object that is deleted."""
        for number in self._numbers.pop(key, ()):
            self._drop((key, number))
        for block in [block for block in self._fetching if block[0] == key]:
            del self._fetching[block]  # its readers get their bytes, but nothing keeps them
        if self._disk is not None:
            self._disk.forget(key)

    async def close(self) -> None:
        """Readers that wait get StorageClosed."""
        self._is_closed = True
        for fetch in self._fetches:
            fetch.cancel()
        await asyncio.gather(*self._fetches, return_exceptions=True)
        self._blocks.clear()
        self._numbers.clear()
        self._unused_ahead.clear()
        self._bytes = 0

    async def _read_several(
        self, key: str, object_size: int, start: int, size: int, ahead: int
    ) -> memoryview:
        """Block by block, so that a large read does not need all of its blocks in memory at once."""
        result = bytearray(size)
        end = start + size
        last = (end - 1) // self._block_bytes
        position = start
        while position < end:
            number, offset = divmod(position, self._block_bytes)
            block = self._cached((key, number))
            fetch = self._fetch_of(key, object_size, number) if block is None else None
            if number < last:
                self._begin_if_room(key, object_size, number + 1)
            elif ahead:
                self._read_ahead(key, object_size, last + 1, ahead)
            if fetch is not None:
                block = await self._fetched(fetch)
            assert block is not None
            part = memoryview(block)[offset : offset + end - position]
            result[position - start : position - start + len(part)] = part
            position += len(part)
        return memoryview(result).toreadonly()

    def _cached(self, block: _Block) -> bytes | memoryview | None:
        found = self._blocks.get(block)
        if found is not None:
            self._blocks.move_to_end(block)
            self.metrics.hits += 1
            self._note_use(block)
        return found

    def _note_use(self, block: _Block) -> None:
        if block in self._unused_ahead:
            self._unused_ahead.remove(block)
            self.metrics.ahead_hits += 1

    def _fetch_of(self, key: str, object_size: int, number: int) -> asyncio.Task[bytes | memoryview]:
        """The fetch of a block that a reader waits for; begun unless it is under way."""
        self.metrics.misses += 1
        block = (key, number)
        self._note_use(block)
        return self._fetching.get(block) or self._begin(key, object_size, number)

    async def _fetched(self, fetch: asyncio.Task[bytes | memoryview]) -> bytes | memoryview:
        try:
            # A reader that is cancelled leaves the fetch to the others.
            return await asyncio.shield(fetch)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if fetch.cancelled() and task is not None and not task.cancelling():
                raise StorageClosed("the block cache is closed") from None
            raise

    def _read_ahead(self, key: str, object_size: int, first: int, count: int) -> None:
        end = min(first + count, -(-object_size // self._block_bytes))
        for number in range(first, end):
            if self._begin_if_room(key, object_size, number):
                self._unused_ahead.add((key, number))
                self.metrics.ahead_reads += 1

    def _begin_if_room(self, key: str, object_size: int, number: int) -> bool:
        """Begin a fetch that no reader waits for, unless it would let others wait."""
        block = (key, number)
        if block in self._blocks or block in self._fetching or len(self._fetches) >= self._most_fetches:
            return False
        self._begin(key, object_size, number)
        return True

    def _begin(self, key: str, object_size: int, number: int) -> asyncio.Task[bytes | memoryview]:
        if self._is_closed:
            raise StorageClosed("the block cache is closed")
        block = (key, number)
        size = min(self._block_bytes, object_size - number * self._block_bytes)
        fetch = asyncio.create_task(self._fetch(block, size), name=f"block {number} of {key}")
        self._fetching[block] = fetch
        self._fetches.add(fetch)
        fetch.add_done_callback(lambda fetch: self._ended(block, fetch))
        return fetch

    async def _fetch(self, block: _Block, size: int) -> bytes | memoryview:
        async with self._permits:
            self._make_room(size)
            self._fetching_bytes += size
            try:
                data = await self._load(block, size)
            finally:
                self._fetching_bytes -= size
            if self._fetching.get(block) is asyncio.current_task():
                self._blocks[block] = data
                self._numbers[block[0]].add(block[1])
                self._bytes += size
        return data

    async def _load(self, block: _Block, size: int) -> bytes | memoryview:
        key, start = block[0], block[1] * self._block_bytes
        if self._disk is not None:
            found = await self._disk.get(key, start, size)
            if found is not None:
                self.metrics.disk_hits += 1
                return found
        data = await self._store.read(key, start, size)
        self.metrics.fetches += 1
        self.metrics.fetched_bytes += size
        if self._disk is not None:
            self._disk.keep(key, start, data)
        return data

    def _ended(self, block: _Block, fetch: asyncio.Task[bytes | memoryview]) -> None:
        self._fetches.discard(fetch)
        if self._fetching.get(block) is fetch:
            del self._fetching[block]
        if fetch.cancelled() or fetch.exception() is not None:
            self._unused_ahead.discard(block)
            if not fetch.cancelled():
                # Readers that wait for the block have the error, too; a read ahead has none.
                log.debug("block %d of object %s: %s", block[1], block[0], fetch.exception())

    def _make_room(self, size: int) -> None:
        while self._blocks and self.bytes_used + size > self._max_bytes:
            key, number = next(iter(self._blocks))
            numbers = self._numbers[key]
            numbers.remove(number)
            if not numbers:
                del self._numbers[key]
            self._drop((key, number))
            self.metrics.evictions += 1

    def _drop(self, block: _Block) -> None:
        self._bytes -= len(self._blocks.pop(block))
        self._unused_ahead.discard(block)
