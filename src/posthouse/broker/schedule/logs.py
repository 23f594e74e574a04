"""The logs that a schedule keeps its entries in: partitions of one internal topic, given out and taken back.

Making a topic for each period would write to the catalog every second. A partition that was trimmed to its
end is as good as new and has no file, so logs are used again.
"""

import asyncio
from dataclasses import replace

from posthouse.model.errors import Unavailable
from posthouse.model.ids import PartitionId, new_topic_id
from posthouse.model.topic_config import TopicConfig
from posthouse.model.topics import Topic
from posthouse.storage.contract import Storage

TOPIC_NAME = ":schedule"
"""No client can use a name with a colon."""

OVERRIDES = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "retention.local.ms": "-1",
    "retention.local.bytes": "-1",
    "max.message.bytes": str(2**31 - 1),
    "segment.bytes": str(64 * 1024 * 1024),
    "segment.ms": str(2**63 - 1),
}
COUNT = 512
"""So many are made at a time. All levels together rarely need more."""


class ScheduleLogs:
    def __init__(self, storage: Storage, defaults: TopicConfig) -> None:
        self._storage = storage
        self._defaults = defaults
        self._topic: Topic | None = None
        self._known = 0
        self._free: list[int] = []
        self._growing = asyncio.Lock()

    def load(self) -> None:
        for topic in self._storage.topics.values():
            if topic.name == TOPIC_NAME:
                self._learn(topic)

    def _learn(self, topic: Topic) -> None:
        self._topic = topic
        self._free[:0] = range(topic.partitions - 1, self._known - 1, -1)
        self._known = topic.partitions

    @property
    def free(self) -> int:
        return len(self._free)

    def free_logs(self) -> list[int]:
        return list(self._free)

    def partition(self, log: int) -> PartitionId:
        if self._topic is None:
            raise Unavailable("the schedule has no logs yet")
        return self._topic.partition(log)

    def take(self) -> int:
        """The lowest numbers come first, and those given back last come before them."""
        if not self._free:
            raise Unavailable("all logs of the schedule are in use; more are being made")
        return self._free.pop()

    def claim(self, log: int) -> bool:
        """Take this one, which was in use before a restart. False if it is not there."""
        if log not in self._free:
            return False
        self._free.remove(log)
        return True

    def give_back(self, log: int) -> None:
        self._free.append(log)

    async def reserve(self, count: int) -> None:
        """See that so many are free."""
        if len(self._free) >= count:
            return
        async with self._growing:
            self.load()  # somebody who was cancelled may have made some
            while len(self._free) < count:
                await self._grow()

    async def _grow(self) -> None:
        if self._topic is None:
            topic = Topic(
                id=new_topic_id(),
                name=TOPIC_NAME,
                partitions=COUNT,
                overrides=OVERRIDES,
                config=self._defaults.with_overrides(OVERRIDES),
            )
            await self._storage.create_topics([topic])
        else:
            topic = replace(self._topic, partitions=self._topic.partitions + COUNT)
            await self._storage.update_topic(topic)
        self._learn(topic)
