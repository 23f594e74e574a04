"""The bytes of a segment file, made in memory: header, batches, and the index."""

from posthouse.model.ids import PartitionId
from posthouse.model.topic_config import TopicConfig
from posthouse.records.batch import BatchHeader, Readable
from posthouse.storage.files.segments.header import Identity
from posthouse.storage.files.segments.index import SparseIndex
from posthouse.storage.files.segments.segment import HEADER_BYTES


class SegmentImage:
    """Batches are added in order, without gaps between their offsets."""

    def __init__(
        self,
        partition: PartitionId,
        base_offset: int,
        config: TopicConfig,
        *,
        created_ms: int,
        generation: int,
    ) -> None:
        self._identity = Identity(partition, base_offset, generation)
        self._index = SparseIndex(config.index_interval_bytes)
        self.data = bytearray(self._identity.header())
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.created_ms = created_ms
        self.generation = generation

    @property
    def batch_bytes(self) -> int:
        return len(self.data) - HEADER_BYTES

    @property
    def max_timestamp(self) -> int:
        return self._index.max_timestamp

    def add(self, batch: Readable, header: BatchHeader) -> None:
        assert header.base_offset == self.next_offset
        self._index.add(header.base_offset, len(self.data), header.length, header.max_timestamp)
        self.data += batch
        self.next_offset = header.next_offset

    def index(self) -> bytes:
        """The content of the index file. To be called once, at the end."""
        return self._index.take_block(self._identity.checksum)
