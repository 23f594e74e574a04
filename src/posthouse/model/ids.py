"""Identities. Distinct types, so that one cannot be passed for another."""

import os
from dataclasses import dataclass
from typing import NewType

TopicId = NewType("TopicId", bytes)
"""Sixteen random bytes that stay with a topic for its whole life; a re-created topic gets new ones."""

Offset = NewType("Offset", int)
"""A record's place in its partition."""


@dataclass(frozen=True, slots=True)
class PartitionId:
    """One partition of one topic."""

    topic: TopicId
    index: int

    def __str__(self) -> str:
        return f"{self.topic.hex()}/{self.index}"


def new_topic_id() -> TopicId:
    return TopicId(os.urandom(16))
