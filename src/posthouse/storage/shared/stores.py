"""What one broker opens once and every storage of it uses: database, object store, caches.

A broker makes a new storage for each of its leases; connections and caches stay, and what it has
acknowledged.
"""

from pathlib import Path

from posthouse.model.clock import Clock
from posthouse.model.topic_config import TopicConfig
from posthouse.storage.shared.commits.last_commits import LastCommits
from posthouse.storage.shared.database import Database
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.shared.held_lease import HeldLease
from posthouse.storage.shared.housekeeping.upkeep import PRODUCER_EXPIRY_MS, UpkeepSettings
from posthouse.storage.shared.objects.measured import MeasuredObjectStore, ObjectStoreMetrics
from posthouse.storage.shared.objects.opening import open_object_store
from posthouse.storage.shared.observed_stores import ObservedStores
from posthouse.storage.shared.reads.block_cache import BLOCK_BYTES, BlockCache
from posthouse.storage.shared.reads.block_files import BlockFiles
from posthouse.storage.shared.reads.disk_cache import DiskCache

_OBJECT_SECONDS = 10.0


class SharedStores:
    def __init__(
        self,
        *,
        database: str,
        objects: str,
        clock: Clock,
        cache_bytes: int,
        cache_directory: Path | None = None,
        cache_directory_bytes: int = 0,
        inline_bytes: int,
        producer_expiry_ms: int = PRODUCER_EXPIRY_MS,
    ) -> None:
        """Raises InvalidConfig for addresses that are none."""
        self.database = Database(database)
        self.object_metrics = ObjectStoreMetrics()
        self.objects = MeasuredObjectStore(
            open_object_store(objects, timeout=_OBJECT_SECONDS), self.object_metrics
        )
        self._clock = clock
        self._inline_bytes = inline_bytes
        self._upkeep = UpkeepSettings(producer_expiry_ms=producer_expiry_ms)
        self._cache_bytes = cache_bytes
        self.last_commits = LastCommits()
        self._disk: DiskCache | None = None
        if cache_directory is not None:
            self._disk = DiskCache(BlockFiles(cache_directory), max_bytes=cache_directory_bytes)
        self.blocks = BlockCache(self.objects, max_bytes=max(cache_bytes // 2, BLOCK_BYTES), disk=self._disk)
        self._observed = ObservedStores(self.objects, self.object_metrics, self.blocks, self._disk)

    async def open(self) -> None:
        """Raises ObjectsAway with what to do if the object store cannot be used."""
        await self.objects.check()
        if self._disk is not None:
            await self._disk.open()

    def storage(self, lease: HeldLease, *, defaults: TopicConfig) -> SharedStorage:
        return SharedStorage(
            self.database,
            self.objects,
            self.blocks,
            lease,
            clock=self._clock,
            defaults=defaults,
            inline_bytes=self._inline_bytes,
            tail_bytes=self._cache_bytes // 4,
            cache_bytes=self._cache_bytes // 4,
            observed=self._observed,
            last_commits=self.last_commits,
            upkeep=self._upkeep,
        )

    async def close(self) -> None:
        await self._observed.close()
        await self.blocks.close()
        if self._disk is not None:
            await self._disk.close()
        await self.objects.close()
