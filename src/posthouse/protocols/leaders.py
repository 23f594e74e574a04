"""Which broker leads each partition: rendezvous hashing over the live brokers.

Every broker gets a score for every partition, and the highest score leads. All brokers compute the same
leaders without talking to each other. When a broker leaves, only the partitions that it led move; when one
joins, only those that it leads from now on.

It is for locality only: the newest records are in one broker's memory, and row locks do not collide. Every
broker serves every partition.
"""

from collections.abc import Sequence
from hashlib import blake2b
from struct import Struct

from posthouse.model.ids import TopicId

_SCORES = Struct(">16I")
_PER_HASH = 16
"""Scores of consecutive partitions that come from one hash: a hash of each would take most of the time of a
metadata response."""
_BROKER = Struct(">iI")
_MOST_TOPICS = 200_000
"""Topics that are remembered. Deleted ones stay until this limit is reached or the brokers change."""


def scores(topic_id: TopicId, partitions: int, broker: int) -> list[int]:
    """The score of one broker for each partition. It does not depend on the number of partitions."""
    found: list[int] = []
    for block in range(-(-partitions // _PER_HASH)):
        found += _SCORES.unpack(blake2b(topic_id + _BROKER.pack(broker, block)).digest())
    return found[:partitions]


def leaders(topic_id: TopicId, partitions: int, brokers: Sequence[int]) -> tuple[int, ...]:
    """The broker that leads each partition. `brokers` must not be empty."""
    if len(brokers) == 1:
        return (brokers[0],) * partitions
    columns = zip(*(scores(topic_id, partitions, each) for each in brokers), strict=True)
    return tuple(brokers[column.index(max(column))] for column in columns)


class Leaders:
    """The leaders of all topics among one set of brokers. Each topic is computed once."""

    __slots__ = ("_known", "brokers")

    def __init__(self, brokers: Sequence[int]) -> None:
        """`brokers` are sorted, and not empty."""
        self.brokers = brokers
        self._known: dict[TopicId, tuple[int, ...]] = {}

    def of(self, topic_id: TopicId, partitions: int) -> tuple[int, ...]:
        found = self._known.get(topic_id)
        if found is None or len(found) != partitions:
            if len(self._known) >= _MOST_TOPICS:
                self._known.clear()
            found = self._known[topic_id] = leaders(topic_id, partitions, self.brokers)
        return found
