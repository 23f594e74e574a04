"""A connection's publishes that are not durable yet, by the wave that they joined."""

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Protocol

from posthouse.broker.queues.publishing import Publishing
from posthouse.broker.queues.wave import Wave
from posthouse.model.errors import PosthouseError
from posthouse.protocols.noop import noop
from posthouse.protocols.request_metrics import ApiMetrics


class PendingConfirms(Protocol):
    """Publishes of one channel whose confirms wait for the end of a wave."""

    def end(self, error: PosthouseError | None) -> None: ...


class Part:
    """What one connection put into one wave."""

    __slots__ = ("_begun", "_unfinished", "count", "size", "spans", "wave")

    def __init__(self, unfinished: "Unfinished", wave: Wave) -> None:
        self._unfinished = unfinished
        self.wave = wave
        self._begun = perf_counter()
        self.count = 0
        """Publishes."""
        self.size = 0
        """Bytes of bodies."""
        self.spans: list[PendingConfirms] = []
        """One for each channel in confirm mode that published into the wave."""

    def ended(self, error: PosthouseError | None) -> None:
        # A span knows its part: left like this, the wave with all its bodies would wait for the collector.
        spans, self.spans = self.spans, []
        for span in spans:
            span.end(error)
        metrics = self._unfinished.metrics
        metrics.seconds.observe(perf_counter() - self._begun, self.count)
        if error is not None:
            metrics.errors += self.count
        self._unfinished.part_ended(self, error)


class Unfinished:
    def __init__(
        self, publishing: Publishing, metrics: ApiMetrics, on_end: Callable[[PosthouseError | None], None]
    ) -> None:
        """`metrics` are those of publishes."""
        self.publishing = publishing
        self.metrics = metrics
        self._on_end = on_end
        self._current: Part | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self.parts = 0
        self.size = 0
        """Bytes of all bodies whose waves have not ended."""

    def part(self) -> Part:
        """That of the wave which is joined now."""
        wave = self.publishing.wave
        part = self._current
        if part is None or part.wave is not wave:
            part = self._current = Part(self, wave)
            self.parts += 1
            wave.on_end(part.ended)
        return part

    async def drained(self) -> None:
        """Wait for all of them: who counts messages right after publishing wants to find them."""
        if self.parts:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def close(self) -> None:
        """Nobody is to be told any more."""
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
