"""Places of the index as spans: all of them, however few spans there may be."""

from collections.abc import AsyncGenerator, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.broker.key_index import offset_spans
from posthouse.broker.key_index.offset_spans import Span, spans_of
from posthouse.broker.key_index.partition_index import Place


async def places_at(ranges: Sequence[tuple[int, int]]) -> AsyncGenerator[Place, None]:
    for first, end in ranges:
        yield Place(first, end, is_exact=end - first == 1)


@st.composite
def rising(draw: st.DrawFn) -> list[tuple[int, int]]:
    at, ranges = 0, []
    for gap, size in draw(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), max_size=12)):
        ranges.append((at + gap, at + gap + size))
        at += gap + size
    return ranges


@given(rising(), st.integers(0, 4), st.integers(1, 4), st.integers(1, 6))
async def test_all_places_are_in_spans(
    ranges: list[tuple[int, int]], gap: int, most: int, most_places: int
) -> None:
    wanted = {offset for first, end in ranges for offset in range(first, end)}
    covered: set[int] = set()
    position, end = 0, 100
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offset_spans, "_MOST_PLACES", most_places)
        while position < end:
            left = [(max(first, position), last) for first, last in ranges if last > position]
            found = await spans_of(places_at(left), end, gap=gap, most=most)
            assert found.next > position and len(found.spans) <= most
            assert all(two.first - one.end > gap for one, two in pairwise(found.spans))
            covered |= {offset for first, last in found.spans for offset in range(first, last)}
            assert {offset for offset in wanted if offset < found.next} <= covered
            position = found.next
    assert wanted <= covered
    assert gap or covered == wanted


async def test_what_is_near_is_one() -> None:
    found = await spans_of(places_at([(3, 4), (6, 7), (20, 30)]), 50, gap=2, most=5)
    assert found == ([Span(3, 7), Span(20, 30)], 50)
    assert await spans_of(places_at([(3, 4), (9, 10)]), 50, gap=2, most=1) == ([Span(3, 4)], 9)
