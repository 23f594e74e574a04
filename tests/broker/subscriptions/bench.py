"""A broker in memory with a topic and a subscription, as any protocol uses it."""

from crc32c import crc32c

from posthouse.broker.appending import Produced
from posthouse.broker.broker import Broker
from posthouse.broker.subscriptions.leases import Acknowledgement, LeasedRun, Verdict
from posthouse.broker.subscriptions.selection import Selection
from posthouse.broker.subscriptions.wishes import Taken, Wish
from posthouse.broker.topics import NewTopic
from posthouse.model.clock import ManualClock
from posthouse.model.errors import PosthouseError
from posthouse.model.ids import GroupId, MemberId
from posthouse.model.topics import Topic
from posthouse.records.batch import ATTRIBUTES_AT, CRC_AT
from posthouse.records.builder import BatchBuilder
from posthouse.records.compression import Codec
from posthouse.settings import Settings
from posthouse.storage.memory.engine import MemoryStorage

NAME = GroupId("workers")
ANN, BOB = MemberId("ann"), MemberId("bob")


class Bench:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.storage = MemoryStorage(self.clock)
        self.broker = Broker(self.storage, Settings(memory=True), self.clock)
        self.subscriptions = self.broker.subscriptions

    async def start(self) -> None:
        await self.broker.start()
        await self.broker.coordinate()
        [topic] = await self.broker.create_topics([NewTopic(name="t", partitions=1)])
        assert isinstance(topic, Topic)
        self.topic, self.partition = topic, topic.partition(0)
        await self.subscriptions.create(NAME)
        await self.subscriptions.move(NAME, {self.partition: 0})

    async def produce(self, *values: bytes, key: bytes | None = None, partition: int = 0) -> None:
        """In one batch."""
        builder = BatchBuilder()
        for value in values:
            builder.add(key, value, timestamp=self.clock.now_ms())
        await self.broker.append([Produced(self.topic, partition, memoryview(builder.build()))]).wait()

    async def fetch(
        self,
        member: MemberId,
        *,
        most: int = 100,
        seconds: float = 0.0,
        lock_seconds: float | None = None,
        while_connected: bool = False,
        selection: Selection | None = None,
    ) -> list[LeasedRun]:
        wish = Wish(
            max_bytes=2**20,
            max_records=most,
            is_strict=True,
            seconds=seconds,
            lock_seconds=lock_seconds,
            while_connected=while_connected,
            selection=selection,
        )
        found = await self.subscriptions.fetch(NAME, member, [self.partition], wish, lambda: True)
        taken = found.get(self.partition)
        if isinstance(taken, PosthouseError):
            raise taken
        return taken.runs if isinstance(taken, Taken) else []

    async def say(
        self,
        member: MemberId,
        first: int,
        last: int,
        verdict: Verdict,
        seconds: float | None = None,
        *,
        counts: bool = True,
    ) -> PosthouseError | None:
        said = {self.partition: [Acknowledgement(first, last, [verdict], seconds, counts)]}
        return (await self.subscriptions.acknowledge(NAME, member, said))[self.partition]


def damaged(*values: bytes) -> bytearray:
    """A batch that is intact by its checksum, but is not compressed as its header says."""
    builder = BatchBuilder()
    for value in values:
        builder.add(None, value, timestamp=1)
    batch = builder.build()
    batch[ATTRIBUTES_AT + 1] |= Codec.GZIP
    batch[CRC_AT:ATTRIBUTES_AT] = crc32c(memoryview(batch)[ATTRIBUTES_AT:]).to_bytes(4, "big")
    return batch
