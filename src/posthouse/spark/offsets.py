"""Offsets by topic and partition, as Spark keeps them in its checkpoint: {"orders": {"0": 17, "1": 4}}.

It is the form of Spark's own Kafka source, so the checkpoint of a query that moves here can be read on.
"""

from collections.abc import Mapping
from typing import NamedTuple

Json = dict[str, dict[str, int]]


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


Offsets = dict[Place, int]


def to_json(offsets: Mapping[Place, int]) -> Json:
    """In one order always: Spark compares the text, and a different one would look like new data."""
    found: Json = {}
    for topic, partition in sorted(offsets):
        found.setdefault(topic, {})[str(partition)] = offsets[Place(topic, partition)]
    return found


def from_json(value: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {
        Place(topic, int(partition)): int(offset)
        for topic, partitions in value.items()
        for partition, offset in partitions.items()
    }
