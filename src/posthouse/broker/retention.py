"""Retention and compaction, as far as queues and the archive allow. Storage carries them out.

Queues need the records of unsettled messages. Only the broker that coordinates knows which these are, so
others leave coordinated topics alone; storage does, too. Records below the offset that the archive's group
has committed have a copy in the archive: `retention.local.*` applies to them.
"""

from collections.abc import Callable
from functools import partial

from posthouse.broker.groups.committing import GroupOffsets
from posthouse.broker.groups.offsets import Offsets
from posthouse.broker.queues.retention import QueueRetention
from posthouse.model.ids import ARCHIVE_GROUP, PartitionId
from posthouse.storage.contract import Storage


class Retention:
    def __init__(
        self,
        storage: Storage,
        offsets: GroupOffsets,
        queues: QueueRetention,
        coordinates: Callable[[], bool],
    ) -> None:
        """`coordinates` tells whether this broker does, and has loaded its queues."""
        self._storage = storage
        self._offsets = offsets
        self._queues = queues
        self._coordinates = coordinates

    async def enforce(self) -> None:
        """Remove records that queues have settled and that the topics' retention settings have expired."""
        try:
            if self._coordinates():
                await self._queues.reclaim()
        finally:
            archived = await self._offsets.stored(ARCHIVE_GROUP)
            held_back = await self._storage.enforce_retention(partial(_archived, archived), self._needed)
            if self._coordinates():
                self._queues.held_back = held_back

    async def compact(self) -> None:
        """Compact the compacted topics, except records that queues need. May take long."""
        await self._storage.compact(self._needed)

    def _needed(self, partition: PartitionId) -> int | None:
        if self._coordinates():
            return self._queues.needed(partition)
        topic = self._storage.topics.get(partition.topic)
        return 0 if topic is None or topic.is_coordinated or topic.is_internal else None


def _archived(offsets: Offsets, partition: PartitionId) -> int:
    committed = offsets.get(ARCHIVE_GROUP, partition)
    return 0 if committed is None else committed.offset
