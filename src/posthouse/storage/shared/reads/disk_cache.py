"""Blocks of objects on a local disk: a second, larger level below the block cache in memory.

The directory may be removed at any time. A disk that is full, slow or broken only means that blocks come from
the object store. After an error the cache rests for a minute, looks through its directory and tries again; a
disk that is full is read all the same.
"""

import asyncio
import logging
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from posthouse.storage.files.system.disk import DISK_FULL
from posthouse.storage.shared.reads.block_files import (
    HEADER_BYTES,
    BlockFiles,
    DamagedBlock,
    block_name,
    key_hash,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

_READERS = 2
_MOST_WRITES = 4
"""Blocks that wait for the disk are in memory: beyond this number, further blocks are not kept."""
_PATIENCE_SECONDS = 1.0
"""The object store is faster than a disk that takes longer for a block."""
_REST_SECONDS = 60.0


class DiskCacheMetrics:
    __slots__ = ("damaged", "evictions", "failures", "written_bytes")

    def __init__(self) -> None:
        self.written_bytes = 0
        self.evictions = 0
        self.damaged = 0
        """Files with other bytes than were written."""
        self.failures = 0
        """Of the disk: errors, and reads that took too long."""


class DiskCache:
    """For one process: two in one directory would remove each other's files, and exceed the bound."""

    def __init__(
        self,
        files: BlockFiles,
        *,
        max_bytes: int,
        patience_seconds: float = _PATIENCE_SECONDS,
        rest_seconds: float = _REST_SECONDS,
    ) -> None:
        self._files = files
        self._max_bytes = max_bytes
        self._patience_seconds = patience_seconds
        self._rest_seconds = rest_seconds
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="disk-cache-read")
        # One thread, so that files are written and removed in the order of the books.
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="disk-cache-write")
        self._sizes: OrderedDict[str, int] = OrderedDict()
        """Of the files, by name; the most recently used one is the last."""
        self._names: defaultdict[str, set[str]] = defaultdict(set)
        """Of the files, by the hash of their key."""
        self._bytes = 0
        """Of the files, with those that are being written."""
        self._writes: dict[str, asyncio.Task[None]] = {}
        self._writing_bytes = 0
        self._removals: set[asyncio.Task[None]] = set()
        self._is_ready = False
        self._preparation: asyncio.Task[None] | None = None
        self._resting_until = 0.0
        self._full_until = 0.0
        self._has_warned = False
        self.metrics = DiskCacheMetrics()

    @property
    def bytes_used(self) -> int:
        return self._bytes

    async def open(self) -> None:
        """Look through the directory. A failure is logged, not raised."""
        await self.settled()
        try:
            self._take(await self._in_writer(self._files.prepare))
            evicted = self._evicted(0)
            await self._in_writer(lambda: self._files.remove(evicted))
        except OSError as error:
            self._rest(error)
            return
        self._is_ready = True

    async def get(self, key: str, start: int, size: int) -> bytes | None:
        """A block, verified; None if it is not there or the disk does not give it."""
        name = block_name(key, start, size)
        if not self._is_usable() or name not in self._sizes:
            return None
        self._sizes.move_to_end(name)
        try:
            async with asyncio.timeout(self._patience_seconds):
                found = await asyncio.get_running_loop().run_in_executor(
                    self._readers, lambda: self._files.read(key, start, size)
                )
        except DamagedBlock:
            self.metrics.damaged += 1
            found = None
        except OSError as error:  # also a timeout
            self._rest(error)
            return None
        if found is None:
            self._remove([name])
        return found

    def keep(self, key: str, start: int, data: bytes | memoryview) -> None:
        """Write a block in the background, if the disk keeps up."""
        name = block_name(key, start, len(data))
        size = HEADER_BYTES + len(data)
        if (
            not self._is_usable()
            or name in self._sizes
            or name in self._writes
            or time.monotonic() < self._full_until
            or len(self._writes) >= _MOST_WRITES
            or self._writing_bytes + size > self._max_bytes
        ):
            return
        evicted = self._evicted(size)
        self._bytes += size
        self._writing_bytes += size
        self._writes[name] = asyncio.create_task(self._write(name, key, start, data, evicted))

    def forget(self, key: str) -> None:
        """Remove the blocks of an object that is deleted."""
        names = list(self._names.get(key_hash(key), ()))
        if names:
            self._remove(names)

    async def settled(self) -> None:
        """Return when the blocks that were given so far are written, and those forgotten are removed."""
        while under_way := [*self._writes.values(), *self._removals]:
            await asyncio.wait(under_way)

    async def close(self) -> None:
        try:
            async with asyncio.timeout(self._patience_seconds):
                await self.settled()
        except TimeoutError:
            log.debug("the disk cache in %s is closed with writes under way", self._files.directory)
            for task in (*self._writes.values(), *self._removals):
                task.cancel()
        if self._preparation is not None:
            self._preparation.cancel()
        self._is_ready = False
        self._resting_until = float("inf")
        for each in (self._readers, self._writer):
            each.shutdown(wait=False, cancel_futures=True)

    def _is_usable(self) -> bool:
        if not self._is_ready and self._preparation is None and time.monotonic() >= self._resting_until:
            self._preparation = asyncio.create_task(self.open())
            self._preparation.add_done_callback(self._prepared)
        return self._is_ready

    def _prepared(self, task: asyncio.Task[None]) -> None:
        self._preparation = None

    async def _write(
        self, name: str, key: str, start: int, data: bytes | memoryview, evicted: Sequence[str]
    ) -> None:
        def write() -> None:
            self._files.remove(evicted)
            self._files.write(key, start, data)

        size = HEADER_BYTES + len(data)
        try:
            await self._in_writer(write)
        except OSError as error:
            self._bytes -= size
            if error.errno in DISK_FULL:  # what is on the disk can be read
                self._full_until = time.monotonic() + self._rest_seconds
                self._note(error)
            else:
                self._rest(error)
        else:
            self._has_warned = False
            self._sizes[name] = size
            self._names[key_hash(key)].add(name)
            self.metrics.written_bytes += size
        finally:
            self._writing_bytes -= size
            del self._writes[name]

    def _take(self, found: dict[str, int]) -> None:
        self._sizes = OrderedDict(found)
        self._names.clear()
        for name in found:
            self._names[name.partition("-")[0]].add(name)
        self._bytes = sum(found.values())

    def _evicted(self, size: int) -> list[str]:
        """Take the least recently used files out of the books until `size` bytes fit; returns their names."""
        names = []
        while self._sizes and self._bytes + size > self._max_bytes:
            name = next(iter(self._sizes))
            self._drop(name)
            names.append(name)
        self.metrics.evictions += len(names)
        return names

    def _drop(self, name: str) -> None:
        self._bytes -= self._sizes.pop(name, 0)
        key = name.partition("-")[0]
        self._names[key].discard(name)
        if not self._names[key]:
            del self._names[key]

    def _remove(self, names: Sequence[str]) -> None:
        for name in names:
            self._drop(name)
        task = asyncio.create_task(self._remove_files(names))
        self._removals.add(task)
        task.add_done_callback(self._removals.discard)

    async def _remove_files(self, names: Sequence[str]) -> None:
        try:
            await self._in_writer(lambda: self._files.remove(names))
        except OSError as error:
            self._rest(error)

    def _rest(self, error: OSError) -> None:
        """Use no disk for a while. What is on it then is looked up again, because some of it is not known."""
        self._is_ready = False
        self._resting_until = time.monotonic() + self._rest_seconds
        self._note(error)

    def _note(self, error: OSError) -> None:
        """Log the first failure since a block was written."""
        self.metrics.failures += 1
        if not self._has_warned:
            self._has_warned = True
            reason = error.strerror or "it does not answer in time"
            log.warning(
                "the disk cache in %s keeps no blocks for now: %s; they come from the object store",
                self._files.directory,
                reason,
            )

    async def _in_writer(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._writer, work)
