"""Ranges: nothing is read twice or not at all, however it is cut."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from posthouse.client.topic_partitions import TopicPartition
from posthouse.spark.planning import OffsetRange, grouped, limited, ranges_between, split

PLACES = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 3))
RANGES = st.dictionaries(PLACES, st.tuples(st.integers(0, 1000), st.integers(1, 5000))).map(
    lambda found: [OffsetRange(place, first, first + size) for place, (first, size) in found.items()]
)


@given(RANGES, st.integers(0, 40), st.none() | st.integers(1, 1000))
def test_pieces_make_up_the_whole(ranges: list[OffsetRange], at_least: int, largest: int | None) -> None:
    pieces = split(ranges, at_least=at_least, largest=largest)
    for each in ranges:
        own = [piece for piece in pieces if piece.place == each.place]
        assert own[0].first == each.first and own[-1].end == each.end
        assert all(one.end == two.first for one, two in pairwise(own))
    assert all(piece.size > 0 for piece in pieces)
    if largest is not None:
        assert all(piece.size <= largest for piece in pieces)


def test_as_many_pieces_as_asked_for() -> None:
    one = OffsetRange(TopicPartition("a", 0), 0, 900)
    other = OffsetRange(TopicPartition("a", 1), 0, 100)
    assert [piece.size for piece in split([one, other], at_least=10)] == [100] * 10
    assert split([one, other], at_least=2) == [one, other]
    assert split([], at_least=5) == []


def test_groups_of_parts() -> None:
    place = TopicPartition("a", 0)
    parts = [OffsetRange(place, first, end) for first, end in ((0, 2), (5, 6), (9, 30))]
    assert grouped(parts, None) == [parts]
    assert grouped([], 5) == []
    sizes = [[each.size for each in group] for group in grouped(parts, 5)]
    assert sizes == [[2, 1], [4], [4], [4], [4], [5]]


@given(RANGES, st.integers(1, 3000))
def test_a_limit_is_shared_and_everybody_moves(ranges: list[OffsetRange], most: int) -> None:
    start = {each.place: each.first for each in ranges}
    end = {each.place: each.end for each in ranges}
    reached = limited(start, end, most)
    assert reached.keys() == end.keys()
    for place in end:
        assert start[place] < reached[place] <= end[place]
    assert sum(reached[place] - start[place] for place in end) <= most + len(ranges)


def test_what_did_not_move_has_no_range() -> None:
    here, there = TopicPartition("a", 0), TopicPartition("a", 1)
    assert ranges_between({here: 5, there: 7}, {here: 5, there: 9}) == [OffsetRange(there, 7, 9)]
