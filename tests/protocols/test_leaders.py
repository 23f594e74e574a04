"""Rendezvous hashing: partitions are spread evenly over brokers and racks, and move only where they must."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from posthouse.model.ids import TopicId
from posthouse.protocols.leaders import Placement, leaders

_TOPIC = TopicId(bytes(range(16)))
topic_ids = st.binary(min_size=16, max_size=16).map(TopicId)
broker_ids = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=7, unique=True).map(sorted)
partition_counts = st.integers(1, 100)
clusters = broker_ids.flatmap(
    lambda ids: st.fixed_dictionaries(dict.fromkeys(ids, st.sampled_from([None, "", "a", "b", "c"])))
)


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


@given(topic_ids, partition_counts, clusters)
def test_replicas_are_the_leader_and_one_broker_of_every_other_rack(
    topic: TopicId, partitions: int, racks: dict[int, str | None]
) -> None:
    found = Placement(racks).of(topic, partitions)
    assert tuple(each[0] for each in found) == leaders(topic, partitions, list(racks))
    named = {rack for rack in racks.values() if rack}
    for leader, *others in found:
        assert sorted(racks[each] or "" for each in others) == sorted(named - {racks[leader]})


@given(topic_ids, partition_counts, clusters.filter(lambda racks: len(racks) > 1), st.data())
def test_the_replica_of_a_rack_moves_only_if_its_broker_leaves(
    topic: TopicId, partitions: int, racks: dict[int, str | None], data: st.DataObject
) -> None:
    gone = data.draw(st.sampled_from(list(racks)))
    left = {each: rack for each, rack in racks.items() if each != gone}
    before, after = Placement(racks), Placement(left)
    for old, new in zip(before.of(topic, partitions), after.of(topic, partitions), strict=True):
        for rack in ("a", "b", "c"):
            was, now = before.of_rack(rack, old), after.of_rack(rack, new)
            assert now == was or was == gone
            assert (now is None) == (rack not in left.values())


def test_the_replicas_of_a_rack_are_spread_evenly() -> None:
    placement = Placement({1: "a", 2: "b", 3: "b", 4: "b", 5: None})
    found = Counter(placement.of_rack("b", each) for each in placement.of(_TOPIC, 30_000))
    assert all(9_700 < found[each] < 10_300 for each in (2, 3, 4))
    assert {placement.of_rack("a", each) for each in placement.of(_TOPIC, 1000)} == {1}


def test_a_leader_that_is_given_takes_the_place_of_its_rack() -> None:
    placement = Placement({1: "a", 2: "a", 3: "b", 4: "b", 5: None})
    for replicas in placement.of(_TOPIC, 100):
        of_a, of_b = (placement.of_rack(rack, replicas) for rack in "ab")
        assert placement.led_by(1, replicas) == (1, of_b)
        assert placement.led_by(4, replicas) == (4, of_a)
        led = placement.led_by(5, replicas)
        assert (led[0], set(led[1:])) == (5, {of_a, of_b})


def test_brokers_without_racks_are_replicas_of_what_they_lead() -> None:
    found = Placement({1: None, 2: "", 3: None}).of(_TOPIC, 100)
    assert found == tuple((each,) for each in leaders(_TOPIC, 100, (1, 2, 3)))


def test_replicas_are_computed_once_for_a_number_of_partitions() -> None:
    known = Placement({1: "a", 2: "b", 3: None})
    assert known.of(_TOPIC, 50) is known.of(_TOPIC, 50)
    assert known.of(_TOPIC, 60)[:50] == known.of(_TOPIC, 50)
    assert len(known.of(_TOPIC, 60)) == 60
