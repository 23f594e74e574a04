"""Rendezvous hashing: partitions are spread evenly, and move only where they must."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from posthouse.model.ids import TopicId
from posthouse.protocols.leaders import Leaders, leaders

_TOPIC = TopicId(bytes(range(16)))
topic_ids = st.binary(min_size=16, max_size=16).map(TopicId)
broker_ids = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=7, unique=True).map(sorted)
partition_counts = st.integers(1, 100)


@given(topic_ids, partition_counts, broker_ids)
def test_every_partition_is_led_by_a_live_broker(topic: TopicId, partitions: int, brokers: list[int]) -> None:
    found = leaders(topic, partitions, brokers)
    assert len(found) == partitions
    assert set(found) <= set(brokers)


@given(topic_ids, partition_counts, broker_ids.filter(lambda each: len(each) > 1), st.data())
def test_only_the_partitions_of_a_broker_that_leaves_move(
    topic: TopicId, partitions: int, brokers: list[int], data: st.DataObject
) -> None:
    gone = data.draw(st.sampled_from(brokers))
    before = leaders(topic, partitions, brokers)
    after = leaders(topic, partitions, [each for each in brokers if each != gone])
    assert all(old in (gone, new) for old, new in zip(before, after, strict=True))


@given(topic_ids, partition_counts, st.integers(0, 100), broker_ids)
def test_new_partitions_move_no_others(
    topic: TopicId, partitions: int, more: int, brokers: list[int]
) -> None:
    assert leaders(topic, partitions + more, brokers)[:partitions] == leaders(topic, partitions, brokers)


def test_the_partitions_are_spread_evenly() -> None:
    brokers = [1, 2, 3]
    of_one_topic = Counter(leaders(_TOPIC, 30_000, brokers))
    of_many = Counter(
        leader
        for number in range(10_000)
        for leader in leaders(TopicId(number.to_bytes(16, "big")), 3, brokers)
    )
    for found in (of_one_topic, of_many):
        assert all(9_700 < found[each] < 10_300 for each in brokers)


def test_leaders_are_computed_once_for_a_number_of_partitions() -> None:
    known = Leaders((1, 2, 3))
    assert known.of(_TOPIC, 50) == leaders(_TOPIC, 50, (1, 2, 3))
    assert known.of(_TOPIC, 50) is known.of(_TOPIC, 50)
    assert known.of(_TOPIC, 60) == leaders(_TOPIC, 60, (1, 2, 3))
