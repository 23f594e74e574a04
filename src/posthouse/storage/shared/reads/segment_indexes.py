"""The indexes of segments: read from the database once, kept in memory."""

from collections import OrderedDict

from posthouse.storage.files.segments.header import Identity
from posthouse.storage.files.segments.index import SparseIndex
from posthouse.storage.shared.logs.shared_log import SharedLog
from posthouse.storage.shared.readers import Readers
from posthouse.storage.shared.reads.pieces import read_index
from posthouse.storage.shared.reads.runs import SegmentRow

_INDEXES = 1000


class SegmentIndexes:
    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self._indexes: OrderedDict[tuple[int, int, int], SparseIndex] = OrderedDict()

    async def of(self, log: SharedLog, segment: SegmentRow) -> SparseIndex | None:
        """None if the segment has gone."""
        key = (segment.log, segment.base, segment.generation)
        index = self._indexes.get(key)
        if index is None:
            identity = Identity(log.partition, segment.base, segment.generation)
            async with self._readers.connection(f"reading the index of {segment.place}") as connection:
                index = await read_index(connection, segment, identity)
            if index is None:
                return None
            self._indexes[key] = index
            while len(self._indexes) > _INDEXES:
                self._indexes.popitem(last=False)
        return index
