"""A log with an index and searches, without a broker around them."""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from posthouse.broker.key_index.files import DiskFiles, IndexDisk, IndexFiles, MemoryFiles
from posthouse.broker.key_index.key_index import IndexLimits, KeyIndex
from posthouse.broker.key_index.key_search import FoundByName, KeySearch, SearchLimits
from posthouse.broker.key_index.names import NameQuery
from posthouse.broker.log_reader import LogReader
from posthouse.broker.long_poll import LongPoll
from posthouse.model.clock import ManualClock
from posthouse.model.ids import PartitionId
from posthouse.model.topics import Topic
from posthouse.records.batch import parse_header
from posthouse.records.builder import BatchBuilder
from posthouse.records.compression import Codec
from posthouse.records.record_names import Name, NameKind
from posthouse.storage.contract import Storage
from posthouse.storage.files.system.disk import OsDisk
from posthouse.storage.memory.engine import MemoryStorage
from posthouse.storage.operations import Append
from tests.storage.batches import make_topic

TINY: Final = IndexLimits(file_entries=8, memory_entries=12, kept_entries=2)
MANY: Final = SearchLimits(records=100_000)
Headers = Sequence[tuple[str, bytes | None]]


class IndexRig:
    def __init__(
        self, storage: Storage, files: IndexFiles, clock: ManualClock, limits: IndexLimits | None = None
    ) -> None:
        self.storage = storage
        self.clock = clock
        self.files = files
        self.index = KeyIndex(storage, files, clock, limits=limits or TINY)
        read = LogReader(storage, LongPoll(storage, storage.subscribe)).read
        self.search = KeySearch(
            self.index, read, lambda topic, partition: storage.bounds(topic.partition(partition)), clock
        )

    async def find(
        self,
        topic: Topic,
        key: bytes,
        *,
        kind: NameKind = NameKind.KEY,
        since: int = -1,
        until: int = 1 << 62,
        limits: SearchLimits = MANY,
    ) -> FoundByName:
        return await self.search.newest(topic, NameQuery(Name(kind, key), since, until), limits)

    async def offsets(self, topic: Topic, key: bytes, **options: int) -> list[int]:
        """Of the first partition."""
        found = await self.find(
            topic, key, since=options.get("since", -1), until=options.get("until", 1 << 62)
        )
        assert found.is_complete
        return [record.offset for partition, record in found.records if partition == 0]

    async def stop(self) -> None:
        await self.index.stop()
        self.search.close()


def keyed(
    partition: PartitionId,
    *records: tuple[bytes | None, int],
    headers: Headers = (),
    value: bytes = b"value",
    codec: Codec = Codec.NONE,
) -> Append:
    """A batch of records with these keys and timestamps."""
    builder = BatchBuilder(codec=codec)
    for key, timestamp in records:
        builder.add(key, value, headers, timestamp)
    batch = builder.build()
    return Append(partition, memoryview(batch), parse_header(batch))


async def write(rig: IndexRig, partition: PartitionId, *keys: bytes, at: int = 1000) -> None:
    await rig.storage.commit([keyed(partition, *((key, at) for key in keys))])


@asynccontextmanager
async def in_memory(
    topics: Iterable[Topic] = (), limits: IndexLimits | None = None
) -> AsyncIterator[IndexRig]:
    clock = ManualClock()
    storage = MemoryStorage(clock)
    await storage.open()
    await storage.create_topics(list(topics))
    rig = IndexRig(storage, MemoryFiles(), clock, limits)
    try:
        yield rig
    finally:
        await rig.stop()
        await storage.close()


async def on_disk(
    storage: Storage, directory: str, clock: ManualClock, disk: IndexDisk | None = None
) -> IndexRig:
    """With the files that are in the directory. The storage is open."""
    rig = IndexRig(storage, DiskFiles(disk or OsDisk(), directory), clock)
    await rig.index.load()
    return rig


def indexed_topic(partitions: int = 1, **overrides: str) -> Topic:
    return make_topic("orders", partitions, id=None, index_keys="true", **overrides)
