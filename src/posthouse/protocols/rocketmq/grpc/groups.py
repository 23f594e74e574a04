"""Consumer groups of the gRPC protocol: subscriptions of the broker, created by use.

A group that clients of the remoting protocol have used before begins where they have committed, and is taken
over: what it reads from then on is acknowledged message by message.
"""

import asyncio
from functools import partial
from typing import Final

from posthouse.broker.broker import Broker
from posthouse.broker.own_settings import Overrides
from posthouse.broker.undisturbed import undisturbed
from posthouse.model.errors import GroupNotEmpty, InvalidGroupId, PosthouseError, UnknownGroup
from posthouse.model.ids import GroupId, PartitionId, TopicId
from posthouse.model.topics import Topic
from posthouse.protocols.rocketmq.delays import MOST_RETRIES
from posthouse.protocols.rocketmq.first_offsets import begins_at_start
from posthouse.protocols.rocketmq.names import check_group_name, dead_letter_topic, topic_name

MOST_DELIVERIES: Final = MOST_RETRIES + 1
LOCK_SECONDS: Final = 60.0
"""How long a consumer that does not say so may take for a message."""

_Key = tuple[GroupId, TopicId, int]
"""With the number of partitions: a topic may get more meanwhile."""


def _settings(group: GroupId) -> dict[str, str]:
    """Of a new group, unless somebody has set others."""
    return {
        "errors.deadletterqueue.topic.name": topic_name(dead_letter_topic(group)),
        "share.delivery.count.limit": str(MOST_DELIVERIES),
        "share.isolation.level": "read_committed",
        "share.partition.max.record.locks": "100000",
        "share.record.lock.duration.ms": str(int(LOCK_SECONDS * 1000)),
    }


class GrpcGroups:
    """Owned by the event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._opening: dict[_Key, asyncio.Task[None]] = {}
        self._last: dict[GroupId, asyncio.Task[None]] = {}
        """Of each group that is being opened."""

    def exists(self, group: GroupId) -> bool:
        return group in self._broker.subscriptions

    def is_ordered(self, group: GroupId) -> bool:
        return self._broker.group_configs.get(group).rocketmq_fifo_enable

    def priority_factor(self, group: GroupId) -> int:
        """In how many of 100 receives priorities count."""
        if self.is_ordered(group):
            return 0
        return self._broker.group_configs.get(group).rocketmq_priority_factor

    def most_deliveries(self, group: GroupId) -> int:
        return self._broker.group_configs.get(group).share_delivery_count_limit

    async def opened(self, group: GroupId, topic: Topic) -> list[PartitionId]:
        """The partitions of the topic, each with the group's progress. Raises InvalidGroupId, GroupNotEmpty
        and Unavailable."""
        partitions = topic.partition_ids()
        if self._is_open(group, partitions):
            return partitions
        check_group_name(group)
        while not self._is_open(group, partitions):
            key = (group, topic.id, topic.partitions)
            opening = self._opening.get(key)
            if opening is None:
                opening = self._start_opening(key, topic)
            # It goes on if the client leaves: half a take-over would be worse than none.
            await undisturbed(opening)
        return partitions

    def _start_opening(self, key: _Key, topic: Topic) -> "asyncio.Task[None]":
        group = key[0]
        opening = asyncio.create_task(self._open(group, topic, self._last.get(group)))
        self._opening[key] = self._last[group] = opening
        opening.add_done_callback(partial(self._opened, key))
        return opening

    def _opened(self, key: _Key, opening: "asyncio.Task[None]") -> None:
        del self._opening[key]
        if self._last.get(key[0]) is opening:
            del self._last[key[0]]

    async def _open(self, group: GroupId, topic: Topic, before: "asyncio.Task[None] | None") -> None:
        if before is not None:  # one after the other, whether that has worked or not
            await asyncio.wait([before])
        if group not in self._broker.subscriptions:
            await self._create(group)
        await self._begin(group, topic)

    def _is_open(self, group: GroupId, partitions: list[PartitionId]) -> bool:
        subscriptions = self._broker.subscriptions
        return group in subscriptions and subscriptions.has_progress(group, partitions)

    async def _create(self, group: GroupId) -> None:
        broker = self._broker
        if broker.groups.has_members(group):
            raise GroupNotEmpty(
                f"the group {group!r} has consumers of the remoting protocol or of Kafka; stop them before "
                "others use it"
            )
        wanted = _settings(group)

        def change(own: Overrides) -> Overrides:
            return {**wanted, **own}

        await broker.group_configs.change(group, change)
        await broker.subscriptions.create(group)

    async def _begin(self, group: GroupId, topic: Topic) -> None:
        broker = self._broker
        committed = broker.groups.offsets
        missing = [
            partition
            for partition in topic.partition_ids()
            if not broker.subscriptions.has_progress(group, [partition])
        ]
        if not missing:
            return
        is_reading = len(missing) < topic.partitions
        begins: dict[PartitionId, int] = {}
        was_consumed = group in broker.groups
        if was_consumed:
            await committed.landed(group)
        for partition in missing:
            known = committed.get(group, partition) if was_consumed else None
            if known is not None:
                begins[partition] = known.offset
            elif is_reading:  # the partition is new, and nobody has seen what it has
                begins[partition] = broker.bounds(topic, partition.index).start
            else:
                begins[partition] = self._start(topic, partition)
        await broker.subscriptions.move(group, begins)
        if was_consumed:
            await self._take_over(group, missing)

    def _start(self, topic: Topic, partition: PartitionId) -> int:
        """As for clients of the remoting protocol."""
        if begins_at_start(self._broker, topic, partition.index):
            return 0
        return self._broker.bounds(topic, partition.index).stable

    async def _take_over(self, group: GroupId, partitions: list[PartitionId]) -> None:
        """One group does not have progress in two forms."""
        try:
            await self._broker.groups.delete_offsets(group, partitions)
        except UnknownGroup:
            return  # there was nothing left of it


def group_id(name: str) -> GroupId:
    """Raises InvalidGroupId."""
    try:
        check_group_name(name)
    except PosthouseError as error:
        raise InvalidGroupId(str(error)) from error
    return GroupId(name)
