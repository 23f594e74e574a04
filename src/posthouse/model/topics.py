"""A topic and the rules for its name."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from posthouse.model.errors import InvalidTopicName, UnknownPartition
from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.scopes import Scope
from posthouse.model.topic_config import TopicConfig

MAX_NAME_LENGTH = 249
INTERNAL_PREFIX = ":"
"""Prefix of the broker's own topics, which clients cannot use."""
_LEGAL_NAME = re.compile(r"[A-Za-z0-9._-]+\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    id: TopicId
    name: str
    partitions: int
    overrides: Mapping[str, str] = field(default_factory=dict)
    """Overrides of this topic, by dotted name; all other settings follow the broker's defaults."""
    config: TopicConfig = field(default_factory=TopicConfig)
    """The broker's defaults with the overrides applied."""
    scope: Scope | None = None
    """In a cluster, the scope of the namespace whose queues it feeds: only the holder writes to it, because
    its records are routed to queues in the same commit. None if it feeds none, and in a broker that is
    alone."""

    @property
    def is_internal(self) -> bool:
        return self.name.startswith(INTERNAL_PREFIX)

    def partition(self, index: int) -> PartitionId:
        return PartitionId(self.id, index)

    def existing_partition(self, index: int) -> PartitionId:
        """Raises UnknownPartition if the topic has no partition with this number."""
        if not 0 <= index < self.partitions:
            raise UnknownPartition(f"topic {self.name!r} has no partition {index}")
        return PartitionId(self.id, index)

    def partition_ids(self) -> list[PartitionId]:
        return [PartitionId(self.id, index) for index in range(self.partitions)]


def check_topic_name(name: str) -> None:
    """Raise InvalidTopicName unless every supported client could use `name`."""
    if not name:
        raise InvalidTopicName("a topic name must not be empty")
    if name in (".", ".."):
        raise InvalidTopicName(f"a topic cannot be called {name!r}")
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidTopicName(
            f"a topic name may have {MAX_NAME_LENGTH} characters, this one has {len(name)}"
        )
    if not _LEGAL_NAME.match(name):
        raise InvalidTopicName(f"topic name {name!r}: only letters, digits, '.', '_' and '-' are allowed")
