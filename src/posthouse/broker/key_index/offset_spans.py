"""Where records of a name may be, as few spans of offsets: for clients that read them by themselves.

Places that are near each other are joined, because a record that is read in vain costs less than a fetch.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final, NamedTuple

from posthouse.broker.key_index.partition_index import Place

_MOST_PLACES: Final = 100_000
"""That are looked at for one answer."""
_PLACES_PER_TURN: Final = 1000


class Span(NamedTuple):
    first: int
    end: int


class OffsetSpans(NamedTuple):
    spans: list[Span]
    next: int
    """All records of the name before this offset are in the spans."""


async def spans_of(places: AsyncGenerator[Place, None], end: int, *, gap: int, most: int) -> OffsetSpans:
    """`places` are those before `end`, in their order. Spans have more than `gap` offsets between them; at
    most `most` are found."""
    spans: list[Span] = []
    looked_at = 0
    async with aclosing(places):
        async for place in places:
            looked_at += 1
            if spans and place.first - spans[-1].end <= gap:
                spans[-1] = Span(spans[-1].first, max(spans[-1].end, place.end))
                position = spans[-1].end
            elif len(spans) == most:
                return OffsetSpans(spans, place.first)
            else:
                spans.append(Span(place.first, place.end))
                position = place.end
            if looked_at == _MOST_PLACES:
                return OffsetSpans(spans, position)
            if looked_at % _PLACES_PER_TURN == 0:
                await asyncio.sleep(0)
    return OffsetSpans(spans, end)
