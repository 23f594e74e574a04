"""Export of a shared storage to a data directory for a single broker.

The lease is held meanwhile, as by a broker, so that nothing changes. A killed export goes on where it was if
no broker has taken a lease since.
"""

import asyncio
from pathlib import Path

from posthouse.model.clock import Clock
from posthouse.model.ids import PartitionId
from posthouse.model.topic_config import TopicConfig
from posthouse.storage.files.engine import FileStorage
from posthouse.storage.shared.administration.transfer.comparison import (
    compare_logs,
    compare_state,
    take_state,
)
from posthouse.storage.shared.administration.transfer.exported_segments import (
    Extent,
    exported_segments,
    load_extents,
)
from posthouse.storage.shared.administration.transfer.importing import TransferProgress, TransferReport
from posthouse.storage.shared.administration.transfer.local_target import LocalTarget
from posthouse.storage.shared.administration.transfer.transfer_lease import (
    PATIENCE_SECONDS,
    TransferRefused,
    take_lease_to_export,
)
from posthouse.storage.shared.database import meaning
from posthouse.storage.shared.engine import SharedStorage
from posthouse.storage.shared.membership.lease import Lease
from posthouse.storage.shared.migrations import applied_schema, check_schema
from posthouse.storage.shared.stores import SharedStores

_STATEMENT_SECONDS = 600.0


async def export_directory(
    directory: Path,
    stores: SharedStores,
    clock: Clock,
    progress: TransferProgress,
    *,
    patience_seconds: float = PATIENCE_SECONDS,
) -> TransferReport:
    """Raises TransferRefused, DataDamaged or Unequal; after any error it can be repeated."""
    target = LocalTarget(directory)
    connection = await stores.database.connect("export", statement_seconds=_STATEMENT_SECONDS)
    async with connection, meaning("reading the version of the tables"):
        check_schema(await applied_schema(connection))
        lease = await take_lease_to_export(connection, stores.database, clock, patience_seconds)
        storage = stores.storage(lease, defaults=TopicConfig())
        try:
            await storage.open()
            extents = await load_extents(connection)
            return await _Export(storage, extents, target, lease, clock, progress).run()
        finally:
            await storage.close()
            await lease.release()


class _Export:
    def __init__(
        self,
        storage: SharedStorage,
        extents: dict[PartitionId, list[Extent]],
        target: LocalTarget,
        lease: Lease,
        clock: Clock,
        progress: TransferProgress,
    ) -> None:
        self._storage = storage
        self._extents = extents
        self._target = target
        self._lease = lease
        self._clock = clock
        self._progress = progress

    async def run(self) -> TransferReport:
        storage, target = self._storage, self._target
        partitions = [id for topic in storage.topics.values() for id in topic.partition_ids()]
        self._progress.begin(2 * sum(map(storage.size, partitions)))
        await asyncio.to_thread(target.begin, storage.cluster_id, self._lease.epoch)
        for partition in partitions:
            await self._copy(partition)
        state = take_state(storage)
        topics = list(storage.topics.values())
        await asyncio.to_thread(target.write_catalog, storage.cluster_id, topics, storage, state)
        copy = FileStorage(target.place, clock=self._clock)
        await copy.open()
        try:
            compare_state(state, take_state(copy))
            compared = await compare_logs(storage, copy, self._progress.advance)
        finally:
            await copy.close()
        if not await self._lease.renew():
            raise TransferRefused("a broker has started; stop all brokers, and export again")
        await asyncio.to_thread(target.finish)
        return TransferReport(topics=len(topics), logs=len(partitions), bytes=compared)

    async def _copy(self, partition: PartitionId) -> None:
        segments = exported_segments(
            self._storage,
            partition,
            self._extents.get(partition, []),
            offset=self._target.reached(partition),
            now_ms=self._clock.now_ms(),
        )
        async for segment in segments:
            await asyncio.to_thread(self._target.add, partition, segment)
            self._progress.advance(segment.image.batch_bytes)
