"""Offsets by topic and partition, in the format of Spark's checkpoint: {"orders": {"0": 17, "1": 4}}.

It is the format of Spark's Kafka source, so a query that moves here can keep its checkpoint.
"""

from collections.abc import Mapping

from posthouse.client.topic_partitions import TopicPartition

Json = dict[str, dict[str, int]]


Offsets = dict[TopicPartition, int]


def to_json(offsets: Mapping[TopicPartition, int]) -> Json:
    """Always in the same order: Spark compares the text, and a different one would look like new data."""
    found: Json = {}
    for topic, partition in sorted(offsets):
        found.setdefault(topic, {})[str(partition)] = offsets[TopicPartition(topic, partition)]
    return found


def from_json(value: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in value.items()
        for partition, offset in partitions.items()
    }
