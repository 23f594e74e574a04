"""The storages of a node: one for each of its leases, on the same database, object store and caches."""

from posthouse.model.clock import Clock
from posthouse.settings import Settings
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.shared.membership.lease import Lease
from posthouse.storage.shared.stores import SharedStores


class SharedStorages:
    def __init__(self, settings: Settings, clock: Clock) -> None:
        assert settings.database is not None and settings.objects is not None
        self._defaults = settings.topic_defaults()
        self._stores = SharedStores(
            database=settings.database.url,
            objects=settings.objects.url,
            clock=clock,
            cache_bytes=settings.cache_bytes,
            cache_directory=settings.cache_directory,
            cache_directory_bytes=settings.cache_directory_bytes,
            inline_bytes=settings.inline_bytes,
            producer_expiry_ms=settings.producer_expiry_ms,
        )

    async def open(self) -> None:
        await self._stores.open()

    def make(self, lease: Lease) -> SharedStorage:
        return self._stores.storage(lease, defaults=self._defaults)

    async def close(self) -> None:
        await self._stores.close()
