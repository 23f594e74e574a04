"""Records that a subscription gives up, because they were delivered too often or a member rejected them:
copied to the topic of its dead letters before they count as settled.

A broker that ends in between copies them again: a dead letter may be there twice, but is never missing.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from posthouse.broker.subscriptions.batches import raw_records
from posthouse.broker.subscriptions.leases import Notes
from posthouse.broker.topics import NewTopic, Topics
from posthouse.model.clock import Clock
from posthouse.model.errors import CorruptBatch, DataDamaged, PosthouseError, TopicExists
from posthouse.model.ids import GroupId, PartitionId
from posthouse.model.topics import Topic
from posthouse.records.header_section import decode_section, encode_section
from posthouse.records.raw import RawRecord
from posthouse.storage.contract import Storage

HEADERS: Final = (
    b"posthouse.dead-group",
    b"posthouse.dead-topic",
    b"posthouse.dead-partition",
    b"posthouse.dead-offset",
)
"""Where a dead letter comes from."""
_READ_BYTES: Final = 1024 * 1024
_HEADER_BYTES: Final = 64 * 1024
"""Room for the headers: a record that fits in its topic fits among the dead letters, too."""

AddRecord = Callable[
    [Topic, int, bytes | None, bytes, bytes, int, Callable[[int | PosthouseError], None]], None
]
"""See `RecordWaves.add`."""
CreateTopics = Callable[[Sequence[NewTopic]], Awaitable[Sequence[Topic | PosthouseError]]]


@dataclass(slots=True)
class _Copies:
    """On their way."""

    left: int
    done: "asyncio.Future[None]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def written(self, result: int | PosthouseError) -> None:
        self.left -= 1
        if isinstance(result, PosthouseError) and not self.done.done():
            self.done.set_exception(result)
        elif not self.left and not self.done.done():
            self.done.set_result(None)


class DeadLetters:
    """Owned by the event loop."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        topics: Topics,
        create_topics: CreateTopics,
        add_record: AddRecord,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._topics = topics
        self._create_topics = create_topics
        self._add_record = add_record

    async def copy(
        self, group: GroupId, partition: PartitionId, rejected: Mapping[int, Notes], name: str
    ) -> None:
        """Copy records to the topic `name`, which is created if there is none; durable on return. Records
        that retention has deleted are left out, and those of that topic itself: they are there, and copies
        would be copied again and again. A batch whose records cannot be decoded is one dead letter, with the
        first of these. Raises Unavailable, and what the topic has against them."""
        source = self._topics.get_by_id(partition.topic)
        if source.name == name:
            return
        topic = await self._topic(name, source)
        wanted = sorted(rejected)
        # In rounds: a member may reject more than memory has room for.
        position = max(wanted[0], self._storage.bounds(partition).start)
        while position <= wanted[-1]:
            records, following = await self._records(partition, position, wanted)
            if following == position:
                raise DataDamaged(f"{partition}: offset {position} cannot be read")
            position = following
            await self._add(group, source, partition, topic, records, rejected)

    async def _add(
        self,
        group: GroupId,
        source: Topic,
        partition: PartitionId,
        topic: Topic,
        records: list[RawRecord],
        notes: Mapping[int, Notes],
    ) -> None:
        if not records:
            return
        copies = _Copies(len(records))
        try:
            for record in records:
                where = (group, source.name, str(partition.index), str(record.offset))
                named = zip(HEADERS, (each.encode() for each in where), strict=True)
                headers = encode_section([*named, *notes[record.offset], *_own(record)])
                self._add_record(
                    topic, 0, record.key, record.value, headers, self._clock.now_ms(), copies.written
                )
        except PosthouseError as error:
            copies.written(error)
        await copies.done

    async def _topic(self, name: str, source: Topic) -> Topic:
        topic = self._topics.find(name)
        if topic is not None:
            return topic
        most = source.config.max_message_bytes + _HEADER_BYTES
        new = NewTopic(name=name, partitions=1, overrides={"max.message.bytes": str(most)})
        [created] = await self._create_topics([new])
        if isinstance(created, TopicExists):  # another broker has just created it
            await self._storage.refresh_definitions()
            return self._topics.get(name)
        if isinstance(created, PosthouseError):
            raise created
        return created

    async def _records(
        self, partition: PartitionId, position: int, wanted: Sequence[int]
    ) -> tuple[list[RawRecord], int]:
        """Some of the wanted records from `position` on, and where to go on."""
        part = await self._storage.read(partition, position, _READ_BYTES, at_least_one=True)
        records, following = raw_records(part.data, position, wanted[-1] + 1)
        some = set(wanted[bisect_left(wanted, position) : bisect_left(wanted, following)])
        found = [record for record in records if record.offset in some]
        # What is not wanted may be long, and is not read.
        behind = bisect_left(wanted, following)
        return found, max(following, wanted[behind]) if behind < len(wanted) else wanted[-1] + 1


def _own(record: RawRecord) -> list[tuple[bytes, bytes | None]]:
    try:
        return decode_section(record.headers)
    except CorruptBatch:
        return []  # as their producer wrote them; the value is kept all the same
