"""Retention and compaction, as far as queues and the archive allow. Storage carries them out.

Queues need the records of unsettled messages. Only the broker that serves them knows which these are, so
others leave topics alone that feed queues; storage does, too. Records below the offset that the archive's
group has committed have a copy in the archive: `retention.local.*` applies to them.
"""

from functools import partial

from posthouse.broker.groups.committing import GroupOffsets
from posthouse.broker.groups.offsets import Offsets
from posthouse.broker.queues.retention import QueueRetention
from posthouse.broker.queues.sources import Sources
from posthouse.model.ids import ARCHIVE_GROUP, PartitionId
from posthouse.storage.contract import Storage


class Retention:
    def __init__(
        self,
        storage: Storage,
        offsets: GroupOffsets,
        queues: QueueRetention,
        sources: Sources,
    ) -> None:
        self._storage = storage
        self._offsets = offsets
        self._queues = queues
        self._sources = sources
        self._is_alone = storage.shared_state is None

    async def enforce(self) -> None:
        """Remove records that queues have settled and that the topics' retention settings have expired."""
        try:
            await self._queues.reclaim()
        finally:
            archived = await self._offsets.stored(ARCHIVE_GROUP)
            held_back = await self._storage.enforce_retention(partial(_archived, archived), self._needed)
            self._queues.held_back = held_back

    async def compact(self) -> None:
        """Compact the compacted topics, except records that queues need. May take long."""
        await self._storage.compact(self._needed)

    def _needed(self, partition: PartitionId) -> int | None:
        if self._is_alone:
            return self._queues.needed(partition)
        topic = self._storage.topics.get(partition.topic)
        if topic is None:
            return 0
        if topic.scope is None:
            return 0 if topic.is_internal else None
        return self._queues.needed(partition) if self._sources.serves(topic.scope) else 0


def _archived(offsets: Offsets, partition: PartitionId) -> int:
    committed = offsets.get(ARCHIVE_GROUP, partition)
    return 0 if committed is None else committed.offset
