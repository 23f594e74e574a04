"""Publisher confirms and consumer acknowledgements of one connection.

A publish is confirmed when its wave is durable; a connection holds one `Part` of each wave that it published
into. Acknowledgements are collected for each queue, and settled together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter

from posthouse.broker.queues.message import Message, MessageSource
from posthouse.broker.queues.publishing import Publishing, Wave
from posthouse.model.errors import PosthouseError
from posthouse.protocols.amqp.answers import Answers
from posthouse.protocols.amqp.codec import encode
from posthouse.protocols.noop import noop
from posthouse.protocols.request_metrics import ApiMetrics


class Part:
    """Publishes of one connection that are confirmed together."""

    __slots__ = ("_begun", "_unfinished", "count", "size", "spans")

    def __init__(self, unfinished: Unfinished) -> None:
        self._unfinished = unfinished
        self._begun = perf_counter()
        self.count = 0
        """Publishes."""
        self.size = 0
        """Bytes of bodies."""
        self.spans: list[ConfirmSpan] = []
        """One for each channel in confirm mode that published them."""

    def ended(self, error: PosthouseError | None) -> None:
        # A span knows its part: in this cycle, the wave with all its bodies would wait for the collector.
        spans, self.spans = self.spans, []
        for span in spans:
            span.end(error)
        metrics = self._unfinished.metrics
        metrics.seconds.observe_many(perf_counter() - self._begun, self.count)
        if error is not None:
            metrics.errors += self.count
        self._unfinished.part_ended(self, error)


class WavePart(Part):
    """Those in one wave."""

    __slots__ = ("wave",)

    def __init__(self, unfinished: Unfinished, wave: Wave) -> None:
        super().__init__(unfinished)
        self.wave = wave


class Unfinished:
    """The publishes of one connection that are not durable yet: by wave, and half messages one by one."""

    def __init__(
        self, publishing: Publishing, metrics: ApiMetrics, on_end: Callable[[PosthouseError | None], None]
    ) -> None:
        """`metrics` are those of publishes. `on_end` is called for each wave that ends, with its error."""
        self.publishing = publishing
        self.metrics = metrics
        self._on_end = on_end
        self._current: WavePart | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self.parts = 0
        self.size = 0
        """Bytes of all bodies whose waves have not ended."""

    def part(self) -> WavePart:
        """The part of the wave that publishes join now."""
        wave = self.publishing.wave
        part = self._current
        if part is None or part.wave is not wave:
            part = self._current = WavePart(self, wave)
            self.parts += 1
            wave.on_end(part.ended)
        return part

    def separate(self, size: int) -> Part:
        """The part of one publish of `size` bytes that is in no wave. The caller ends it."""
        part = Part(self)
        part.count = 1
        part.size = size
        self.parts += 1
        self.size += size
        return part

    async def drained(self) -> None:
        """Return when all waves have ended: a client that counts messages after publishing finds its own."""
        if self.parts:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def close(self) -> None:
        """The connection is lost: it is told of no more waves."""
        self._on_end = noop

    def part_ended(self, part: Part, error: PosthouseError | None) -> None:
        self.size -= part.size
        self.parts -= 1
        if self._current is part:
            self._current = None
        if not self.parts:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
        self._on_end(error)


class ConfirmSpan:
    """The publishes of one channel in one wave."""

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
    """Publisher confirms of one channel: publishes are numbered from 1 and confirmed in that order.

    A frame with `multiple` confirms every number up to its own that has not been confirmed. So it is sent for
    a span only when all spans before it have ended. Publishes that are confirmed one by one, in the middle of
    a span, are confirmed before the span.
    """

    __slots__ = ("_channel", "_outbox", "_spans", "published")

    def __init__(self, channel: int, outbox: Answers) -> None:
        self._channel = channel
        self._outbox = outbox
        self._spans: deque[ConfirmSpan] = deque()
        self.published = 0

    @property
    def unconfirmed(self) -> int:
        return sum(span.count for span in self._spans)

    def joined(self, part: Part) -> None:
        """The next publish is one of `part`."""
        self.published = number = self.published + 1
        spans = self._spans
        if not spans or (span := spans[-1]).part is not part:
            span = ConfirmSpan(self, part)
            spans.append(span)
            part.spans.append(span)
        span.last = number
        span.count += 1

    def taken(self) -> None:
        """The next publish needs no wave: confirm it."""
        self.published += 1
        self._outbox.send(encode.ack(self._channel, self.published, False))

    def refused(self) -> None:
        """The next publish is refused."""
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


class CollectedAcks:
    """Acknowledgements of one connection, collected for each queue: most clients send them one by one."""

    __slots__ = ("_metrics", "acked", "raised")

    def __init__(self, metrics: ApiMetrics) -> None:
        self._metrics = metrics
        self.acked: dict[MessageSource, list[Message]] = {}
        self.raised: dict[MessageSource, None] = {}
        """Queues with a consumer whose credit was raised."""

    def flush(self) -> None:
        """Settle them. Called at the end of a turn, and before any method that could tell the difference."""
        if self.acked:
            acked, self.acked = self.acked, {}
            for queue, messages in acked.items():
                queue.ack(messages)
                self._metrics.untimed += len(messages)
        if self.raised:
            raised, self.raised = self.raised, {}
            for queue in raised:
                queue.credit_raised()
