"""Which brokers clients are sent to for each partition: rendezvous hashing over the live brokers.

Every broker gets a score for every partition, and the highest score leads. The highest score among the
brokers of a rack is the *replica* of that rack: consumers in it read there. All brokers compute the same
without talking to each other. When a broker leaves, only the partitions that it led, or was a replica of,
move; when one joins, only those that it gets.

It is for locality only: the newest records are in the leader's memory, row locks do not collide, and
consumers need not read from another zone. Every broker serves every partition.
"""

from collections.abc import Mapping, Sequence
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

Replicas = tuple[int, ...]
"""The brokers of one partition: its leader, then one of every other rack. Empty while there is no leader."""


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
    return _highest({each: scores(topic_id, partitions, each) for each in brokers}, brokers)


def _highest(scored: Mapping[int, Sequence[int]], brokers: Sequence[int]) -> tuple[int, ...]:
    columns = zip(*(scored[each] for each in brokers), strict=True)
    return tuple(brokers[column.index(max(column))] for column in columns)


class Placement:
    """The replicas of all topics among one set of brokers. Each topic is computed once."""

    __slots__ = ("_brokers", "_by_rack", "_equal", "_known", "racks")

    def __init__(self, racks: Mapping[int, str | None]) -> None:
        """`racks` are those of the brokers, by their ids in order. It is not empty."""
        self.racks = racks
        self._brokers = list(racks)
        self._by_rack: dict[str, list[int]] = {}
        for broker, rack in racks.items():
            if rack:
                self._by_rack.setdefault(rack, []).append(broker)
        self._known: dict[TopicId, tuple[Replicas, ...]] = {}
        self._equal: dict[Replicas, Replicas] = {}
        """Very many partitions have the same replicas."""

    def of(self, topic_id: TopicId, partitions: int) -> tuple[Replicas, ...]:
        """The replicas of each partition."""
        found = self._known.get(topic_id)
        if found is None or len(found) != partitions:
            if len(self._known) >= _MOST_TOPICS:
                self._known.clear()
            found = self._known[topic_id] = self._computed(topic_id, partitions)
        return found

    def _computed(self, topic_id: TopicId, partitions: int) -> tuple[Replicas, ...]:
        if len(self._brokers) == 1:
            return ((self._brokers[0],),) * partitions
        scored = {each: scores(topic_id, partitions, each) for each in self._brokers}
        of_racks = [_highest(scored, self._by_rack[rack]) for rack in sorted(self._by_rack)]
        return tuple(
            self._with_leader(leader, others)
            for leader, *others in zip(_highest(scored, self._brokers), *of_racks, strict=True)
        )

    def led_by(self, leader: int, replicas: Replicas) -> Replicas:
        """The replicas of a partition of `of` which this broker leads instead."""
        return self._with_leader(leader, [each for each in replicas if self.racks[each]])

    def _with_leader(self, leader: int, of_racks: Sequence[int]) -> Replicas:
        rack = self.racks.get(leader)
        made = (leader, *(each for each in of_racks if self.racks[each] != rack))
        return self._equal.setdefault(made, made)

    def of_rack(self, rack: str, replicas: Replicas) -> int | None:
        """The replica of a rack; None if no broker has that rack."""
        if rack not in self._by_rack:
            return None
        return next((each for each in replicas if self.racks.get(each) == rack), None)
