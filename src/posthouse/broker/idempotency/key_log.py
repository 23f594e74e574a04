"""The log of idempotency keys: an internal topic, with an entry for each request that had one.

    record key      hash of topic, owner and key, 32 bytes
    record value    fingerprint of the request, 32 bytes

An entry is committed with the batches of its request, all or none. It is a batch of the key's producer:
storage refuses the whole commit if the key has been used for something else, also where the records would go
to other partitions than before. After a crash there are both, entry and records, or neither.

Which keys are remembered is the state of producers, which `producer_expiry_ms` ends. The records of entries
are read only to compare a whole fingerprint, and retention may remove them earlier.
"""

from collections.abc import Mapping
from typing import Final

from posthouse.broker.changes import SerializedChanges
from posthouse.broker.idempotency.keyed_producer import KeyedProducer
from posthouse.model.errors import TopicExists, Unavailable, UnknownTopic
from posthouse.model.ids import PartitionId, new_topic_id
from posthouse.model.topic_config import TopicConfig
from posthouse.model.topics import Topic
from posthouse.records.batch import parse_header
from posthouse.records.builder import BatchBuilder
from posthouse.records.record import iter_records
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Append
from posthouse.storage.producers import Producer

TOPIC_NAME: Final = ":idempotency-keys"
"""Clients cannot use a name with a colon."""
PARTITIONS: Final = 16
"""Brokers that append to the same one wait for each other."""
_OVERRIDES: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "retention.bytes": "-1",
    "segment.bytes": str(16 * 1024 * 1024),
    "segment.ms": str(6 * 3600 * 1000),
}
_TRIES: Final = 5


class KeyLog:
    """Owned by the event loop."""

    def __init__(self, storage: Storage, defaults: TopicConfig, *, expiry_ms: int) -> None:
        self._storage = storage
        self._defaults = defaults
        # Segments go as a whole: none is to go while storage remembers a key of it.
        self._overrides = {**_OVERRIDES, "retention.ms": str(2 * expiry_ms)}
        self._topic: Topic | None = None
        self._changes = SerializedChanges()

    async def topic(self) -> Topic:
        """Created with the first key. Raises Unavailable."""
        if self._topic is None:
            self._topic = await self._changes.make(self._created())
        return self._topic

    async def _created(self) -> Topic:
        for _ in range(_TRIES):
            await self._storage.settle_definitions()
            if (found := self._found()) is not None:
                return found
            topic = Topic(
                id=new_topic_id(),
                name=TOPIC_NAME,
                partitions=PARTITIONS,
                overrides=self._overrides,
                config=self._defaults.with_overrides(self._overrides),
            )
            try:
                await self._storage.create_topics([topic])
            except TopicExists:  # another broker has just created it
                await self._storage.refresh_definitions()
                continue
            return topic
        raise Unavailable("the log of idempotency keys cannot be created: try again")

    def _found(self) -> Topic | None:
        topics = self._storage.topics.values()
        return next((topic for topic in topics if topic.name == TOPIC_NAME), None)

    async def current(self, topic: Topic) -> Topic:
        """The topic as it is now: another broker may have changed it. Raises UnknownTopic and Unavailable."""
        await self._storage.refresh_definitions()
        found = self._storage.topics.get(topic.id)
        if found is None:
            raise UnknownTopic(f"topic {topic.name!r} was deleted")
        return found

    def remembered(self) -> int:
        """How many keys the logs remember, as far as this broker knows."""
        topic = self._topic
        return (
            0 if topic is None else sum(len(self._storage.producers(each)) for each in topic.partition_ids())
        )

    async def known(self, producer: KeyedProducer) -> Producer | None:
        """What the key was used for. Raises Unavailable."""
        partition = _partition(await self.topic(), producer)
        await self._storage.refresh([partition], with_producers=True)
        return self._storage.producers(partition).get(producer.id)

    async def fingerprint_at(self, producer: KeyedProducer, offset: int, key: bytes) -> bytes | None:
        """That of the entry; None if it is not there any more. Raises Unavailable."""
        partition = _partition(await self.topic(), producer)
        await self._storage.refresh([partition])
        bounds = self._storage.bounds(partition)
        if not bounds.start <= offset < bounds.end:
            return None
        found = await self._storage.read(partition, offset, 1)
        for record in iter_records(found.data) if found.data else ():
            if record.offset == offset and record.key == key:
                return record.value
        return None


def entry(topic: Topic, producer: KeyedProducer, key: bytes, fingerprint: bytes, now_ms: int) -> Append:
    """To be committed with the batches of the request."""
    builder = BatchBuilder(
        producer_id=producer.id, producer_epoch=producer.epoch, base_sequence=producer.sequence
    )
    builder.add(key, fingerprint, timestamp=now_ms)
    batch = memoryview(builder.build())
    return Append(_partition(topic, producer), batch, parse_header(batch))


def _partition(topic: Topic, producer: KeyedProducer) -> PartitionId:
    return topic.partition(producer.id % topic.partitions)
