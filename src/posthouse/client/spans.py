"""Parts of a range of offsets that are read, while what lies between them is left out."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

_ONE_BATCH = 1
_FIRST_BYTES = 64 * 1024


class Span(NamedTuple):
    """Offsets from `first` to before `end`."""

    first: int
    end: int


class SpanFetches:
    """Where the next fetch begins, and its size: a span may be one record, and bytes behind it are wasted."""

    def __init__(self, spans: Sequence[Span], end: int, most_bytes: int) -> None:
        """`spans` rise and do not overlap."""
        self._spans = spans
        self._ends = [each.end for each in spans]
        self._end = end
        self._most_bytes = most_bytes
        self._number = -1
        """Of the span that was asked for last."""
        self._bytes = 0

    def following(self, offset: int) -> int:
        """The first offset from `offset` on that is wanted, or the end."""
        number = bisect_right(self._ends, offset)
        return self._end if number == len(self._spans) else max(offset, self._spans[number].first)

    def size(self, offset: int) -> int:
        """Bytes to ask for from this wanted offset on. It doubles while a span goes on."""
        number = bisect_right(self._ends, offset)
        if self._spans[number].end - offset == 1:
            return _ONE_BATCH
        self._bytes = 2 * self._bytes if number == self._number else _FIRST_BYTES
        self._bytes = min(self._bytes, self._most_bytes)
        self._number = number
        return self._bytes
