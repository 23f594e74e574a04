"""Consumer groups of the gRPC protocol: subscriptions of the broker, created by use.

A group that clients of the remoting protocol have used before begins where they have committed, and is taken
over: what it reads from then on is acknowledged message by message.
"""

import asyncio
from typing import Final

from posthouse.broker.broker import Broker
from posthouse.broker.own_settings import Overrides
from posthouse.model.errors import GroupNotEmpty, InvalidGroupId, PosthouseError, UnknownGroup
from posthouse.model.ids import GroupId, PartitionId
from posthouse.model.topics import Topic
from posthouse.protocols.group_users import GroupUsers
from posthouse.protocols.rocketmq.delays import MOST_RETRIES
from posthouse.protocols.rocketmq.names import check_group_name, dead_letter_topic, topic_name
from posthouse.protocols.rocketmq.remoting.handlers.offsets import FROM_THE_START_BYTES

MOST_DELIVERIES: Final = MOST_RETRIES + 1
LOCK_SECONDS: Final = 60.0
"""How long a consumer that does not say so may take for a message."""


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

    def __init__(self, broker: Broker, users: GroupUsers) -> None:
        self._broker = broker
        self._users = users
        self._turns: dict[GroupId, asyncio.Lock] = {}

    def exists(self, group: GroupId) -> bool:
        return group in self._broker.subscriptions

    def is_ordered(self, group: GroupId) -> bool:
        return self._broker.group_configs.get(group).rocketmq_fifo_enable

    def most_deliveries(self, group: GroupId) -> int:
        return self._broker.group_configs.get(group).share_delivery_count_limit

    async def opened(self, group: GroupId, topic: Topic) -> list[PartitionId]:
        """The partitions of the topic, each with the group's progress. Raises InvalidGroupId, GroupNotEmpty
        and Unavailable."""
        partitions = topic.partition_ids()
        if self._is_open(group, partitions):
            return partitions
        check_group_name(group)
        turn = self._turns.setdefault(group, asyncio.Lock())
        try:
            async with turn:
                if group not in self._broker.subscriptions:
                    await self._create(group)
                await self._begin(group, topic)
        finally:
            if not turn.locked() and self._turns.get(group) is turn:
                del self._turns[group]
        return partitions

    def _is_open(self, group: GroupId, partitions: list[PartitionId]) -> bool:
        subscriptions = self._broker.subscriptions
        return group in subscriptions and subscriptions.has_progress(group, partitions)

    async def _create(self, group: GroupId) -> None:
        if self._users.is_used(group):
            raise GroupNotEmpty(
                f"the group {group!r} has consumers of the remoting protocol; stop them before others use it"
            )
        broker = self._broker
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
        begins: dict[PartitionId, int] = {}
        was_consumed = group in broker.groups
        if was_consumed:
            await committed.landed(group)
        for partition in missing:
            known = committed.get(group, partition) if was_consumed else None
            begins[partition] = self._start(topic, partition) if known is None else known.offset
        await broker.subscriptions.move(group, begins)
        if was_consumed:
            await self._take_over(group, missing)

    def _start(self, topic: Topic, partition: PartitionId) -> int:
        """As for clients of the remoting protocol."""
        bounds = self._broker.bounds(topic, partition.index)
        is_small = self._broker.size(topic, partition.index) <= FROM_THE_START_BYTES
        return 0 if bounds.start == 0 and is_small else bounds.stable

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
