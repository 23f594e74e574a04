"""When the messages of a lane expire, without remembering each of them.

Messages that arrive one after the other share a span with the earliest of their times. When that time comes,
the references of the span are read again and say which of its messages it is. One span stands for thousands
of messages, so that a long backlog costs little memory.
"""

from heapq import heappop, heappush

SPAN = 4096
"""So many positions a span has at the most."""


class Expiries:
    def __init__(self) -> None:
        self._spans: list[tuple[int, int, int]] = []
        """A heap of earliest time, first position, end."""
        self._open: tuple[int, int, int] | None = None
        """The youngest span, which still grows."""

    def add(self, first: int, end: int, expires_ms: int) -> None:
        span = self._open
        if span is not None and end - span[1] <= SPAN:
            self._open = (min(span[0], expires_ms), span[1], end)
            return
        if span is not None:
            heappush(self._spans, span)
        self._open = (expires_ms, first, end)

    def add_span(self, earliest: int, first: int, end: int) -> None:
        """What is left of a span that was looked at."""
        heappush(self._spans, (earliest, first, end))

    @property
    def earliest(self) -> int | None:
        """When there is next something to look at."""
        times = [self._open[0]] if self._open is not None else []
        if self._spans:
            times.append(self._spans[0][0])
        return min(times, default=None)

    def due(self, now_ms: int) -> tuple[int, int] | None:
        """Take out one span whose time has come: first position and end."""
        if self._open is not None and self._open[0] <= now_ms:
            heappush(self._spans, self._open)
            self._open = None
        if self._spans and self._spans[0][0] <= now_ms:
            _, first, end = heappop(self._spans)
            return first, end
        return None
