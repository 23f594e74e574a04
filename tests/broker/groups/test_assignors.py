"""The broker's assignors: complete, even, and moving no more than they must."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from posthouse.broker.groups.assignors import (
    ASSIGNORS,
    Assignment,
    Sizes,
    Subscriber,
    assign_range,
    assign_uniform,
)
from posthouse.model.ids import InstanceId, MemberId, PartitionId, TopicId

TOPICS = [TopicId(bytes([number]) * 16) for number in range(4)]

sizes_of_topics = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12), min_size=1)
names = st.lists(st.integers(0, 30).map(lambda number: MemberId(f"m{number:02}")), min_size=1, unique=True)


@st.composite
def any_subscribers(draw: st.DrawFn) -> dict[MemberId, Subscriber]:
    wanted = st.frozensets(st.sampled_from(TOPICS))
    return {member: Subscriber(topics=draw(wanted)) for member in draw(names)}


def next_round(
    members: list[MemberId], topics: frozenset[TopicId], before: Assignment
) -> dict[MemberId, Subscriber]:
    return {member: Subscriber(topics=topics, current=before.get(member, frozenset())) for member in members}


def everything(sizes: Sizes, topics: frozenset[TopicId]) -> set[PartitionId]:
    return {PartitionId(topic, index) for topic in topics for index in range(sizes.get(topic, 0))}


@pytest.mark.parametrize("name", ASSIGNORS)
@given(subscribers=any_subscribers(), sizes=sizes_of_topics)
def test_every_partition_exactly_once(
    name: str, subscribers: dict[MemberId, Subscriber], sizes: dict[TopicId, int]
) -> None:
    assignment = ASSIGNORS[name](subscribers, sizes)
    assert set(assignment) == set(subscribers)
    given_out = [partition for share in assignment.values() for partition in share]
    wanted = frozenset(topic for each in subscribers.values() for topic in each.topics)
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == everything(sizes, wanted)
    for member, share in assignment.items():
        assert {partition.topic for partition in share} <= subscribers[member].topics


@given(members=names, sizes=sizes_of_topics)
def test_equal_subscriptions_get_equal_shares(members: list[MemberId], sizes: dict[TopicId, int]) -> None:
    shares = assign_uniform(next_round(members, frozenset(sizes), {}), sizes).values()
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@given(before=names, after=names, sizes=sizes_of_topics)
def test_uniform_moves_no_more_than_it_must(
    before: list[MemberId], after: list[MemberId], sizes: dict[TopicId, int]
) -> None:
    topics = frozenset(sizes)
    old = assign_uniform(next_round(before, topics, {}), sizes)
    new = assign_uniform(next_round(after, topics, old), sizes)
    assert max(map(len, new.values())) - min(map(len, new.values())) <= 1
    stayed = sum(len(new[member] & old.get(member, frozenset())) for member in after)
    share, extra = divmod(len(everything(sizes, topics)), len(after))
    held = sorted((len(old.get(member, frozenset())) for member in after), reverse=True)
    possible = sum(min(size, share + (place < extra)) for place, size in enumerate(held))
    assert stayed == possible


@given(subscribers=any_subscribers(), sizes=sizes_of_topics)
def test_uniform_is_level_where_it_can_be(
    subscribers: dict[MemberId, Subscriber], sizes: dict[TopicId, int]
) -> None:
    """No single partition could go to somebody who has at least two less."""
    assignment = assign_uniform(subscribers, sizes)
    for giver, share in assignment.items():
        for partition in share:
            for taker, each in subscribers.items():
                if partition.topic in each.topics and taker != giver:
                    assert len(assignment[taker]) + 1 >= len(share)


@given(subscribers=any_subscribers(), sizes=sizes_of_topics)
def test_uniform_stays_as_it_is(subscribers: dict[MemberId, Subscriber], sizes: dict[TopicId, int]) -> None:
    first = assign_uniform(subscribers, sizes)
    again = {
        member: Subscriber(topics=each.topics, current=first[member]) for member, each in subscribers.items()
    }
    assert assign_uniform(again, sizes) == first


def test_range_gives_neighbours() -> None:
    a, b = MemberId("a"), MemberId("b")
    topics = frozenset(TOPICS[:2])
    assignment = assign_range(
        {b: Subscriber(topics=topics), a: Subscriber(topics=topics)}, dict.fromkeys(topics, 3)
    )
    assert assignment[a] == {PartitionId(topic, index) for topic in topics for index in (0, 1)}
    assert assignment[b] == {PartitionId(topic, 2) for topic in topics}


def test_range_goes_by_the_name_of_a_static_member() -> None:
    """It has a new id after a restart and must get the same as before."""
    topics = frozenset(TOPICS[:1])

    def shares(first: str, second: str) -> list[frozenset[PartitionId]]:
        one = Subscriber(topics=topics, instance=InstanceId("1"))
        two = Subscriber(topics=topics, instance=InstanceId("2"))
        assignment = assign_range({MemberId(first): one, MemberId(second): two}, {TOPICS[0]: 4})
        return [assignment[MemberId(first)], assignment[MemberId(second)]]

    assert shares("a", "b") == shares("z", "b")


def test_nobody() -> None:
    assert assign_uniform({}, {TOPICS[0]: 3}) == {}
    assert assign_range({}, {TOPICS[0]: 3}) == {}
