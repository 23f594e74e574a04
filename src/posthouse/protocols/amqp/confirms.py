"""Publisher confirms: which of a channel's publishes are durable."""

from __future__ import annotations

from collections import deque

from posthouse.model.errors import PosthouseError
from posthouse.protocols.amqp.codec import encode
from posthouse.protocols.amqp.unfinished import Part
from posthouse.protocols.outbox import Outbox


class ConfirmSpan:
    """Publishes of one channel that joined one wave."""

    __slots__ = ("_confirms", "count", "error", "has_ended", "last", "part")

    def __init__(self, confirms: Confirms, part: Part) -> None:
        self._confirms = confirms
        self.part = part
        self.last = 0
        self.count = 0
        self.has_ended = False
        self.error: PosthouseError | None = None

    def end(self, error: PosthouseError | None) -> None:
        self.error = error
        self.has_ended = True
        self._confirms.ended()


class Confirms:
    """Publishes are numbered from 1 and confirmed in that order, many with one frame.

    A frame with `multiple` speaks for every number up to its own that has not been spoken of. So it is sent
    for a span only when all spans before it have ended; and those that are settled one by one, in the middle
    of a span, are settled before.
    """

    __slots__ = ("_channel", "_outbox", "_spans", "published")

    def __init__(self, channel: int, outbox: Outbox) -> None:
        self._channel = channel
        self._outbox = outbox
        self._spans: deque[ConfirmSpan] = deque()
        self.published = 0

    def joined(self, part: Part) -> None:
        """The next publish goes with the wave that `part` is in."""
        self.published = number = self.published + 1
        spans = self._spans
        if not spans or (span := spans[-1]).part is not part:
            span = ConfirmSpan(self, part)
            spans.append(span)
            part.spans.append(span)
        span.last = number
        span.count += 1

    def taken(self) -> None:
        """The next publish needs no wave: it is done."""
        self.published += 1
        self._outbox.send(encode.ack(self._channel, self.published, False))

    def refused(self) -> None:
        """The next publish is not taken."""
        self.published += 1
        self._outbox.send(encode.nack(self._channel, self.published, False))

    def ended(self) -> None:
        """Confirm the publishes whose waves have ended, as far as their order allows."""
        spans = self._spans
        last = count = 0
        while spans and spans[0].has_ended:
            span = spans.popleft()
            if span.error is None:
                last = span.last
                count += span.count
                continue
            self._acknowledge(last, count)
            last = count = 0
            self._outbox.send(encode.nack(self._channel, span.last, span.count > 1))
        self._acknowledge(last, count)

    def close(self) -> None:
        """The channel is closed: it sends no more confirms."""
        self._spans.clear()

    def _acknowledge(self, last: int, count: int) -> None:
        if count:
            self._outbox.send(encode.ack(self._channel, last, count > 1))
