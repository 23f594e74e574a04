"""When the messages of a lane expire, without remembering each of them.

Messages that arrive one after the other share a span with the earliest of their times. When that time comes,
the references of the span are read again and say which of its messages it is. One span stands for thousands
of messages, so that a long backlog costs little memory.
"""

from heapq import heappop, heappush

SPAN = 4096
"""The most positions of a span."""


class Expiries:
    def __init__(self) -> None:
        self._spans: list[tuple[int, int, int]] = []
        """A heap of earliest time, first position, end."""
        self._open: tuple[int, int, int] | None = None
        """The youngest span, which still grows."""
        self.earliest: int | None = None
        """When to look at the next span."""

    def add(self, first: int, end: int, expires_ms: int) -> None:
        self._lower(expires_ms)
        span = self._open
        if span is not None and end - span[1] <= SPAN:
            self._open = (min(span[0], expires_ms), span[1], end)
            return
        if span is not None:
            heappush(self._spans, span)
        self._open = (expires_ms, first, end)

    def add_span(self, earliest: int, first: int, end: int) -> None:
        """Add the rest of a span that was looked at."""
        self._lower(earliest)
        heappush(self._spans, (earliest, first, end))

    def _lower(self, expires_ms: int) -> None:
        if self.earliest is None or expires_ms < self.earliest:
            self.earliest = expires_ms

    def due(self, now_ms: int) -> tuple[int, int] | None:
        """Take out one span whose time has come: first position and end."""
        if self._open is not None and self._open[0] <= now_ms:
            heappush(self._spans, self._open)
            self._open = None
        if self._spans and self._spans[0][0] <= now_ms:
            _, first, end = heappop(self._spans)
            times = [self._spans[0][0]] if self._spans else []
            if self._open is not None:
                times.append(self._open[0])
            self.earliest = min(times, default=None)
            return first, end
        return None
