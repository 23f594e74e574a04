"""What the log lets go of, by its topics' settings. Storage does it, and asks here what others still need.

Queues need the records of messages that are not settled. What the archive's group has committed is kept there
too: `retention.local.*` applies to it.
"""

from posthouse.broker.groups.committing import GroupOffsets
from posthouse.broker.queues.retention import QueueRetention
from posthouse.model.ids import ARCHIVE_GROUP, PartitionId
from posthouse.storage.contract import Storage


class Retention:
    def __init__(self, storage: Storage, offsets: GroupOffsets, queues: QueueRetention) -> None:
        self._storage = storage
        self._offsets = offsets
        self._queues = queues

    async def enforce(self) -> None:
        """Let go of what queues are done with and what the topics' settings no longer keep."""
        try:
            await self._queues.reclaim()
        finally:
            self._queues.held_back = await self._storage.enforce_retention(
                self._archived, self._queues.needed
            )

    async def compact(self) -> None:
        """Remove what compacted topics need not keep, and that no queue needs. May take long."""
        await self._storage.compact(self._queues.needed)

    def _archived(self, partition: PartitionId) -> int:
        committed = self._offsets.get(ARCHIVE_GROUP, partition)
        return 0 if committed is None else committed.offset
