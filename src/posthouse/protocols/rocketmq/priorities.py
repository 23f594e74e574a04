"""Priorities of messages, as upstream has them: a message's priority is the number of its queue, and
consumers that do not choose a queue get the messages of queues with high numbers first.

A topic has priorities once a message with one was sent to it: its setting `rocketmq.priority.enable` is true
then. Set to false before, that refuses messages with priorities.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Final

from posthouse.model.ids import PartitionId
from posthouse.model.topics import Topic
from posthouse.protocols.rocketmq.codec.codes import PRIORITY, SHARDING_KEY, TRANSACTION_PREPARED
from posthouse.protocols.rocketmq.delays import PROPERTIES as DELAYS

SETTING: Final = "rocketmq.priority.enable"
LOWEST: Final = 0
MOST: Final = (1 << 31) - 1
_DIGITS: Final = 10


def stored_priority(properties: Mapping[str, str]) -> int | None:
    """None if there is none, or something else."""
    text = properties.get(PRIORITY, "")
    if not text.isascii() or not text.isdigit() or len(text) > _DIGITS:
        return None
    priority = int(text)
    return priority if priority <= MOST else None


def is_of_another_type(properties: Mapping[str, str]) -> bool:
    """Messages of transactions, delayed and ordered ones have no priority."""
    return (
        properties.get(TRANSACTION_PREPARED) == "true"
        or SHARDING_KEY in properties
        or not DELAYS.isdisjoint(properties)
    )


def queue_of(priority: int, topic: Topic) -> int:
    """Those above the number of queues are the highest."""
    return min(priority, topic.partitions - 1)


def has_said(topic: Topic) -> bool:
    """Whether the setting of the topic itself says that it has priorities, or has not."""
    return SETTING in topic.overrides


def refusal(topic: Topic) -> str | None:
    """Why messages with a priority are refused; None if they are not."""
    if topic.config.rocketmq_priority_enable or not has_said(topic):
        return None
    return f"topic {topic.name!r} takes no priorities: its setting {SETTING} is false"


def in_order(partitions: Sequence[PartitionId], factor: int, turn: int) -> list[PartitionId]:
    """In which order a consumer gets what is there: by priority in `factor` of 100 calls, at random. In the
    others, each call begins with another partition."""
    if random.randrange(100) < factor:
        return list(reversed(partitions))
    start = turn % len(partitions)
    return [*partitions[start:], *partitions[:start]]
