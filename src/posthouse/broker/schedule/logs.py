"""The logs of a schedule: partitions of one internal topic, allocated and released.

In a cluster every scope of namespaces has a schedule of its own. That of the default namespace has the name
that the only schedule of a broker has that is alone: see `queues/due_elsewhere`.

A topic for each period would mean a write to the catalog every second. A partition that was trimmed to its
end is empty and has no file, so logs are reused.
"""

import asyncio
from dataclasses import replace

from posthouse.model.errors import Unavailable
from posthouse.model.ids import PartitionId, new_topic_id
from posthouse.model.scopes import DEFAULT_NAMESPACE, NAMESPACES, Scope, scope_of_namespace
from posthouse.model.topic_config import TopicConfig
from posthouse.model.topics import Topic
from posthouse.storage.contract import Storage

TOPIC_NAME = ":schedule"
"""Clients cannot use a name with a colon."""
OF_ALL = scope_of_namespace(DEFAULT_NAMESPACE)
"""The scope of the schedule that a broker has that is alone."""

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
"""Number of logs to create at a time. All levels together rarely need more."""


def topic_name(scope: Scope) -> str:
    return TOPIC_NAME if scope == OF_ALL else f"{TOPIC_NAME}:{scope.namespace_shard:02}"


def scope_of_schedule(topic: str) -> Scope | None:
    """None for other topics."""
    return next((scope for scope in NAMESPACES if topic_name(scope) == topic), None)


def prefix_of(scope: Scope) -> bytes:
    """Of the keys of its buckets in storage."""
    shard = scope.namespace_shard
    assert shard is not None
    return b"" if scope == OF_ALL else bytes([shard])


class ScheduleLogs:
    def __init__(self, storage: Storage, defaults: TopicConfig, scope: Scope) -> None:
        self._storage = storage
        self._name = topic_name(scope)
        self._scope = scope
        self._defaults = defaults
        self._topic: Topic | None = None
        self._known = 0
        self._free: list[int] = []
        self._growing = asyncio.Lock()

    def load(self) -> None:
        for topic in self._storage.topics.values():
            if topic.name == self._name:
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
        """Allocate a log: the most recently released one first, then the lowest number."""
        if not self._free:
            raise Unavailable("all logs of the schedule are in use; more are being created, try again")
        return self._free.pop()

    def claim(self, log: int) -> bool:
        """Allocate a log that was in use before a restart. False if it does not exist."""
        if log not in self._free:
            return False
        self._free.remove(log)
        return True

    def recycle(self, log: int) -> None:
        self._free.append(log)

    async def reserve(self, count: int) -> None:
        """Create logs until `count` are free."""
        if len(self._free) >= count:
            return
        async with self._growing:
            await self._storage.settle_definitions()
            self.load()  # a caller that was cancelled or failed may have created some
            while len(self._free) < count:
                await self._grow()

    async def _grow(self) -> None:
        if self._topic is None:
            topic = Topic(
                id=new_topic_id(),
                name=self._name,
                partitions=COUNT,
                overrides=OVERRIDES,
                config=self._defaults.with_overrides(OVERRIDES),
                scope=self._scope if self._storage.is_shared else None,
            )
            await self._storage.create_topics([topic])
        else:
            topic = replace(self._topic, partitions=self._topic.partitions + COUNT)
            await self._storage.update_topic(topic)
        self._learn(topic)
