"""How a range is divided between objects and brokers."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from posthouse.client.manifests import SegmentObject
from posthouse.client.topic_partitions import TopicPartition
from posthouse.spark.planning import OffsetRange
from posthouse.spark.segments.reading import first_part


def segment(base: int, last: int) -> SegmentObject:
    return SegmentObject(address="", start=0, size=0, base=base, last=last, generation=0)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), max_size=8),
    st.integers(0, 50),
    st.integers(1, 50),
)
def test_the_parts_are_the_range(lengths: list[tuple[int, int]], first: int, size: int) -> None:
    """Also with gaps, and with segments that overlap because they come from two manifests."""
    segments = [segment(base, base + length) for base, length in sorted(lengths)]
    wanted = OffsetRange(TopicPartition("orders", 0), first, first + size)
    in_segments = {offset for each in segments for offset in range(each.base, each.last + 1)}
    while wanted.first < wanted.end:
        part, chosen = first_part(wanted, segments)
        assert wanted.first == part.first < part.end <= wanted.end
        offsets = set(range(part.first, part.end))
        if chosen:
            assert offsets <= in_segments
            assert chosen[0].base <= part.first and chosen[-1].last >= part.end - 1
        else:
            assert not offsets & in_segments
        wanted = replace(wanted, first=part.end)
