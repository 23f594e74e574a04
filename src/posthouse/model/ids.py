"""Identities. Distinct types, so that one cannot be passed for another."""

import os
from dataclasses import dataclass
from typing import NewType

TopicId = NewType("TopicId", bytes)
"""Sixteen random bytes that identify a topic for its whole life; a re-created topic gets new ones."""

TOPIC_ID_BYTES = 16

Offset = NewType("Offset", int)
"""A record's position in its partition."""

GroupId = NewType("GroupId", str)
"""The name of a consumer group."""

ARCHIVE_GROUP = GroupId("posthouse.archive")
"""Its committed offsets are the archived ends of partitions; nothing else commits them."""

MemberId = NewType("MemberId", str)
"""One member of a group, while it is a member."""

FIRST_KEYED = 1 << 61
"""Producer ids from here to below `FIRST_BOUND` are those of idempotency keys."""
FIRST_BOUND = 1 << 62
"""From here on they are bound to users."""

InstanceId = NewType("InstanceId", str)
"""A name that a static member keeps over restarts; its member id changes."""


@dataclass(frozen=True, slots=True)
class PartitionId:
    """One partition of one topic."""

    topic: TopicId
    index: int

    def __str__(self) -> str:
        return f"{self.topic.hex()}/{self.index}"


def is_keyed(producer_id: int) -> bool:
    """Of an idempotency key: it has one request, which nothing follows."""
    return FIRST_KEYED <= producer_id < FIRST_BOUND


def new_topic_id() -> TopicId:
    return TopicId(os.urandom(TOPIC_ID_BYTES))
