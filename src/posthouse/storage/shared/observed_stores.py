"""How the object store and the caches of a broker are doing, for all of its storages."""

import asyncio
import contextlib
import time

from posthouse.storage.remote_metrics import CacheMetrics
from posthouse.storage.shared.objects.measured import ObjectStoreMetrics
from posthouse.storage.shared.objects.store import ObjectsAway, ObjectStore
from posthouse.storage.shared.reads.block_cache import BlockCache
from posthouse.storage.shared.reads.disk_cache import DiskCache

_CHECK_SECONDS = 5.0
"""Pause between two checks of an object store that failed."""


class ObservedStores:
    def __init__(
        self,
        objects: ObjectStore,
        metrics: ObjectStoreMetrics,
        blocks: BlockCache,
        disk: DiskCache | None = None,
    ) -> None:
        """`metrics` are those of `objects`."""
        self._objects = objects
        self.metrics = metrics
        self._blocks = blocks
        self._disk = disk
        self._check: asyncio.Task[None] | None = None
        self._checked_at = 0.0

    @property
    def cache(self) -> CacheMetrics:
        blocks = self._blocks.metrics
        return CacheMetrics(
            hits=blocks.hits,
            misses=blocks.misses,
            disk_hits=blocks.disk_hits,
            memory_bytes=self._blocks.bytes_used,
            disk_bytes=None if self._disk is None else self._disk.bytes_used,
        )

    @property
    def away_seconds(self) -> float | None:
        since = self.metrics.away_since
        return None if since is None else time.monotonic() - since

    def objects_failure(self) -> str | None:
        """Why the object store cannot be used. It is checked meanwhile: a broker that is asked for nothing
        would not learn that it is back."""
        seconds = self.away_seconds
        if seconds is None:
            return None
        if self._check is None and time.monotonic() - self._checked_at > _CHECK_SECONDS:
            self._check = asyncio.create_task(self._look())
        return (
            f"the object store {self._objects.name} has not answered for {seconds:.0f} s "
            f"({self.metrics.failure}): records in objects cannot be read, and topics with latency=object "
            "take no writes"
        )

    async def _look(self) -> None:
        try:
            await self._objects.check()
        except ObjectsAway as error:
            self.metrics.failure = str(error)
        finally:
            self._checked_at = time.monotonic()
            self._check = None

    async def close(self) -> None:
        if self._check is not None:
            self._check.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._check
