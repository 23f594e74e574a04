"""How many partitions internal topics have, and what stands in the way of a topology."""

from dataclasses import replace

import pytest

from posthouse.broker.groups.streams_store import decoded_topology, put_topology
from posthouse.broker.groups.streams_topology import (
    ConfiguredTopology,
    InternalTopic,
    Obstacle,
    Subtopology,
    Topology,
    configured,
)
from posthouse.broker.groups.topic_view import TopicView
from posthouse.model.errors import DataDamaged, InvalidTopology
from posthouse.model.ids import GroupId
from tests.broker.groups.consumer_clients import topic
from tests.broker.groups.streams_clients import COUNT, READ, TOPOLOGY, topics_for


def configure(*subtopologies: Subtopology, **sizes: int) -> ConfiguredTopology:
    topics = TopicView([topic(name, size) for name, size in sizes.items()])
    return configured(Topology(epoch=0, subtopologies=subtopologies), topics)


def counts(found: ConfiguredTopology) -> dict[str, int]:
    return {name: each.partitions for name, each in found.internal.items()}


def test_internal_topics_follow_what_is_read() -> None:
    found = configure(READ, COUNT, t=3)
    assert counts(found) == {"r": 3, "c": 3}
    assert [each.name for each in found.missing] == ["c", "r"]
    assert found.obstacle is Obstacle.MISSING_INTERNAL_TOPICS
    assert found.detail == "Internal topics are missing: c, r"
    found = configured(TOPOLOGY, TopicView(topics_for(3)))
    assert (found.is_ready, found.missing) == (True, ())
    assert [(each.id, each.tasks, each.is_stateful) for each in found.subtopologies] == [
        ("0", 3, False),
        ("1", 3, True),
    ]


def test_a_subtopology_has_a_task_for_each_partition_of_its_largest_topic() -> None:
    found = configure(Subtopology(id="0", sources=("a", "b")), a=2, b=5)
    assert found.tasks("0") == 5
    assert found.tasks("1") is None


def test_source_topics_must_be_there() -> None:
    found = configure(Subtopology(id="0", sources=("a", "b", "x", "y", "z")), b=1)
    assert found.obstacle is Obstacle.MISSING_SOURCE_TOPICS
    assert found.detail == "Source topics a, x, y and 1 more are missing."
    assert found.subtopologies == ()


def test_a_number_that_was_given_counts() -> None:
    given = replace(COUNT, repartition_sources=(InternalTopic(name="r", partitions=7),))
    assert counts(configure(READ, given, t=3)) == {"r": 7, "c": 7}


def test_an_internal_topic_of_another_size_stands_in_the_way() -> None:
    found = configure(READ, COUNT, t=3, r=3, c=2)
    assert found.obstacle is Obstacle.INCORRECTLY_PARTITIONED_TOPICS
    assert found.detail == "Existing topic c has different number of partitions: expected 3, found 2"


def test_chains_of_repartition_topics() -> None:
    last = Subtopology(id="2", repartition_sources=(InternalTopic(name="s"),))
    middle = replace(COUNT, repartition_sinks=("s",))
    assert counts(configure(last, middle, READ, t=4)) == {"s": 4, "r": 4, "c": 4}


def test_circles_and_topics_that_are_not_written() -> None:
    ring = [
        Subtopology(id=one, repartition_sources=(InternalTopic(name=one),), repartition_sinks=(other,))
        for one, other in (("a", "b"), ("b", "a"))
    ]
    with pytest.raises(InvalidTopology, match="in a circle"):
        configure(*ring)
    with pytest.raises(InvalidTopology, match="no subtopology writes"):
        configure(COUNT)
    with pytest.raises(InvalidTopology, match="reads no topic"):
        configure(Subtopology(id="0"))


def test_an_application_has_a_limit_of_tasks() -> None:
    many = [Subtopology(id=str(number), sources=("t",)) for number in range(11)]
    assert configure(*many[:10], t=1000).is_ready
    with pytest.raises(InvalidTopology, match="more than 10000 tasks"):
        configure(*many, t=1000)


def joined(*names: str, fixed: int = 0) -> Subtopology:
    return Subtopology(
        id="1",
        sources=("a",),
        repartition_sources=(InternalTopic(name="r", partitions=fixed),),
        copartitioned=(frozenset(names),),
    )


def test_topics_that_are_read_together_have_the_same_number_of_partitions() -> None:
    assert counts(configure(READ, joined("a", "r"), t=3, a=6)) == {"r": 6}
    found = configure(READ, joined("a", "r", fixed=2), t=3, a=6)
    assert found.obstacle is Obstacle.INCORRECTLY_PARTITIONED_TOPICS
    assert "[2] of repartition topic [r]" in found.detail
    both = Subtopology(id="0", sources=("a", "b"), copartitioned=(frozenset({"a", "b"}),))
    found = configure(both, a=1, b=2)
    assert found.obstacle is Obstacle.INCORRECTLY_PARTITIONED_TOPICS
    assert found.detail == "Following topics do not have the same number of partitions: [a=1, b=2]"
    assert configure(both, a=2, b=2).is_ready


def test_only_repartition_topics_take_the_largest_number() -> None:
    writers = [Subtopology(id=name, sources=(name,), repartition_sinks=(f"r{name}",)) for name in ("a", "b")]
    reader = Subtopology(
        id="c",
        repartition_sources=(InternalTopic(name="ra"), InternalTopic(name="rb")),
        copartitioned=(frozenset({"ra", "rb"}),),
    )
    assert counts(configure(*writers, reader, a=2, b=5)) == {"ra": 5, "rb": 5}


def test_which_subtopology_reads_a_topic() -> None:
    assert TOPOLOGY.subtopology_of("t") == "0"
    assert TOPOLOGY.subtopology_of("r") == "1"
    assert TOPOLOGY.subtopology_of("c") is None
    assert TOPOLOGY.required == {"t", "r", "c"}
    assert READ.topics == {"t", "r"}


def test_a_topology_can_be_stored() -> None:
    rich = Topology(
        epoch=3,
        subtopologies=(
            replace(
                COUNT,
                copartitioned=(frozenset({"r", "x"}),),
                changelogs=(InternalTopic(name="c", configs={"a": "b"}),),
            ),
        ),
    )
    value = put_topology(GroupId("g"), rich).value
    assert value is not None
    assert decoded_topology(value) == rich
    for damaged in (b"", b"{}", b"[]", b'{"epoch": 1, "subtopologies": [1]}', value[:-3]):
        with pytest.raises(DataDamaged):
            decoded_topology(damaged)
