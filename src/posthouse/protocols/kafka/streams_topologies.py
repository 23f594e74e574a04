"""Conversion of the topology of a Kafka Streams application from Kafka's format to the broker's."""

from collections.abc import Sequence

from posthouse.broker.groups.streams_topology import InternalTopic, Subtopology, Topology
from posthouse.model.errors import InvalidTopicName, InvalidTopology
from posthouse.model.topics import check_topic_name
from posthouse.protocols.kafka.codec.generated import streams_group_heartbeat as wire

_MOST_TOPICS = 1000
_MOST_TEXT = 1024 * 1024
"""Maximum characters of all names and settings: the topology is stored as a whole."""
_RESERVED = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def decoded_topology(topology: wire.Topology) -> Topology:
    """Raises InvalidTopology."""
    _check_size(topology)
    if topology.epoch < 0:
        raise InvalidTopology(f"a topology cannot have the epoch {topology.epoch}")
    decoded = tuple(_subtopology(each) for each in topology.subtopologies)
    if len({each.id for each in decoded}) < len(decoded):
        raise InvalidTopology("two subtopologies have the same id")
    for name in sorted({name for each in decoded for name in each.topics}):
        if name in _RESERVED:
            raise InvalidTopology(f"{name} is a topic of Kafka's own and cannot be used in a topology")
        try:
            check_topic_name(name)
        except InvalidTopicName as error:
            raise InvalidTopology(str(error)) from None
    return Topology(epoch=topology.epoch, subtopologies=decoded)


def _check_size(topology: wire.Topology) -> None:
    topics = text = 0
    for each in topology.subtopologies:
        internal = [*each.repartition_source_topics, *each.state_changelog_topics]
        names = [*each.source_topics, *each.repartition_sink_topics, *(topic.name for topic in internal)]
        topics += max(1, len(names)) + len(each.copartition_groups)
        text += len(each.subtopology_id) + sum(map(len, names))
        for topic in internal:
            text += sum(len(config.key) + len(config.value) for config in topic.topic_configs)
            topics += len(topic.topic_configs) // 10
    if topics > _MOST_TOPICS or text > _MOST_TEXT:
        raise InvalidTopology(f"a topology may have {_MOST_TOPICS} topics and {_MOST_TEXT} characters")


def _subtopology(given: wire.Subtopology) -> Subtopology:
    if given.source_topic_regex:
        raise InvalidTopology("regular expressions for source topics are not supported")
    repartitioned = [_internal(each) for each in given.repartition_source_topics]
    return Subtopology(
        id=given.subtopology_id,
        sources=tuple(given.source_topics),
        repartition_sources=tuple(repartitioned),
        repartition_sinks=tuple(given.repartition_sink_topics),
        changelogs=tuple(_internal(each) for each in given.state_changelog_topics),
        copartitioned=tuple(
            frozenset(
                [
                    *_at(given.source_topics, group.source_topics),
                    *_at([each.name for each in repartitioned], group.repartition_source_topics),
                ]
            )
            for group in given.copartition_groups
        ),
    )


def _internal(given: wire.TopicInfo) -> InternalTopic:
    if given.partitions < 0:
        raise InvalidTopology(f"the topic {given.name!r} cannot have {given.partitions} partitions")
    return InternalTopic(
        name=given.name,
        partitions=given.partitions,
        replicas=given.replication_factor,
        configs={each.key: each.value for each in given.topic_configs},
    )


def _at(names: Sequence[str], places: Sequence[int]) -> list[str]:
    if any(not 0 <= place < len(names) for place in places):
        raise InvalidTopology("topics that are read together must be among those that are read")
    return [names[place] for place in places]
