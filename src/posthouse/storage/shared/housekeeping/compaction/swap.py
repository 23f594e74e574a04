"""The transactions that end the cleaning of a group of segments."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from posthouse.model.ids import PartitionId
from posthouse.storage.shared.database import DatabaseConnection, meaning
from posthouse.storage.shared.held_lease import HeldLease
from posthouse.storage.shared.housekeeping.compaction.cleaning import CleanedGroup
from posthouse.storage.shared.housekeeping.object_port import HousekeptObjects
from posthouse.storage.shared.housekeeping.segment_image import SegmentImage
from posthouse.storage.shared.objects.names import ObjectNames


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedLog:
    id: int
    partition: PartitionId


class CompactionEffects(Protocol):
    """What the broker's memory of a log must follow."""

    def compacted(self, partition: PartitionId, *, to: int, growth: int) -> None:
        """Batches below the offset `to` have changed: none of them may be read from memory.

        The log has `growth` bytes more than before, mostly less than 0.
        """

    def aborted_forgotten(self, partition: PartitionId, markers: Sequence[int]) -> None:
        """The aborted transactions with these markers are no longer listed."""


class CompactionSwap:
    def __init__(
        self,
        objects: HousekeptObjects,
        names: ObjectNames,
        lease: HeldLease,
        effects: CompactionEffects,
    ) -> None:
        self._objects = objects
        self._names = names
        self._lease = lease
        self._effects = effects

    async def put(self, connection: DatabaseConnection, log: CompactedLog, group: CleanedGroup) -> bool:
        """Put the new segment in the place of the old ones, or note that they are clean.

        Returns false if an old one is no longer there: then nothing has changed.
        """
        if group.image is not None:
            return await self._replace(connection, log, group, group.image)
        for source in group.sources:
            clean_to = min(group.clean_to, source.next)
            if (source.clean_to, source.horizon) != (clean_to, group.horizon):
                async with meaning("noting that a segment is compacted"):
                    await connection.execute(
                        "SELECT note_compaction(%s, %s, %s, %s, %s, %s, %s)",
                        [
                            self._lease.incarnation,
                            self._lease.epoch,
                            log.id,
                            source.base,
                            source.generation,
                            clean_to,
                            group.horizon,
                        ],
                    )
        return True

    async def _replace(
        self, connection: DatabaseConnection, log: CompactedLog, group: CleanedGroup, image: SegmentImage
    ) -> bool:
        key = self._names.new()
        await self._objects.put(key, image.data)
        async with meaning("putting a compacted segment in its place"):
            found = await connection.execute(
                "SELECT swap_segments(%s, %s, %s, %s, %s::integer[], %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
                [
                    self._lease.incarnation,
                    self._lease.epoch,
                    log.id,
                    [source.base for source in group.sources],
                    [source.generation for source in group.sources],
                    key,
                    image.base_offset,
                    image.next_offset - 1,
                    len(image.data),
                    image.max_timestamp,
                    image.created_ms,
                    image.generation,
                    group.clean_to,
                    group.horizon,
                    image.index(),
                ],
            )
            [(growth,)] = await found.fetchall()
        if growth is None:
            return False
        self._effects.compacted(log.partition, to=image.next_offset, growth=growth)
        return True

    async def forget(self, connection: DatabaseConnection, log: CompactedLog, markers: Sequence[int]) -> None:
        async with meaning("forgetting aborted transactions"):
            await connection.execute(
                "SELECT forget_aborted(%s, %s, %s, %s)",
                [self._lease.incarnation, self._lease.epoch, log.id, list(markers)],
            )
        self._effects.aborted_forgotten(log.partition, markers)
