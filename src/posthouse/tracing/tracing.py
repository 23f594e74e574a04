"""The broker's tracer: takes note of steps on the event loop, and makes spans of them in a thread."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, cast

from posthouse.broker.appending import Appended, Produced
from posthouse.broker.tracing import DeliveredMessage, FetchedBatches, PendingAppend
from posthouse.model.errors import InvalidConfig
from posthouse.storage.outcomes import Outcome
from posthouse.tracing.trace_contexts import (
    TRACEPARENT,
    Delivered,
    contexts_in_batch,
    contexts_in_slice,
    contexts_of_delivery,
    may_carry_contexts,
)
from posthouse.tracing.transit import Transit, TransitStep
from posthouse.tracing.worker import TracingWorker

log = logging.getLogger(__name__)

FLUSH_SECONDS: Final = 5.0
"""How long a stop waits until the spans are exported."""


class Spans(Protocol):
    def record(self, transit: Transit) -> None:
        """Make the spans of a transit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _AppendTimes:
    started: int
    committing: int
    ended: int


class Tracing:
    """The methods of the port `Tracer` are called on the event loop. Started once, stopped once."""

    def __init__(
        self, spans: Spans, shut_down: Callable[[], None], *, flush_seconds: float = FLUSH_SECONDS
    ) -> None:
        """`shut_down` exports what there is, however long that takes."""
        self._spans = spans
        self._shut_down = shut_down
        self._flush_seconds = flush_seconds
        self._worker = TracingWorker()

    def now(self) -> int:
        return time.time_ns()

    def start(self) -> None:
        self._worker.start()

    async def stop(self) -> None:
        """Export what there is, for a few seconds at most; the rest is lost."""
        seconds = self._flush_seconds
        if not await asyncio.to_thread(self._flushed, seconds):
            log.warning("spans could not be exported within %g s, and some are lost", seconds)

    def _flushed(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        is_traced = self._worker.close(seconds)
        # A thread of its own, since OpenTelemetry heeds no deadline; it ends with the process at the latest.
        exporting = threading.Thread(target=self._shut_down, name="posthouse-span-export", daemon=True)
        exporting.start()
        exporting.join(max(deadline - time.monotonic(), 0.0))
        return is_traced and not exporting.is_alive()

    # Batches that are produced or published

    def appended(
        self, batches: Sequence[Produced], appending: PendingAppend, *, started: int, committing: int
    ) -> None:
        if not may_carry_contexts(each.batch for each in batches):
            return
        future = appending.future
        if future is None:
            times = _AppendTimes(started=started, committing=committing, ended=committing)
            self._note_appended(batches, appending.results([]), times)
            return

        def ended(done: asyncio.Future[list[Outcome]]) -> None:
            if done.cancelled():
                return
            error = done.exception()
            results: Sequence[Appended | BaseException]
            results = appending.results(done.result()) if error is None else [error] * len(batches)
            times = _AppendTimes(started=started, committing=committing, ended=self.now())
            self._note_appended(batches, results, times)

        future.add_done_callback(ended)

    def _note_appended(
        self, batches: Sequence[Produced], results: Sequence[Appended | BaseException], times: _AppendTimes
    ) -> None:
        def trace() -> None:
            for produced, result in zip(batches, results, strict=True):
                self._trace_append(produced, result, times)

        self._worker.submit(trace, _held_by(batches))

    def _trace_append(
        self, produced: Produced, result: Appended | BaseException, times: _AppendTimes
    ) -> None:
        base_offset = result.base_offset if isinstance(result, Appended) else None
        found = contexts_in_batch(produced.batch, base_offset)
        if found.contexts:
            self._spans.record(
                Transit(
                    step=TransitStep.SEND,
                    destination=produced.topic.name,
                    partition=produced.partition,
                    started=times.started,
                    committing=None if base_offset is None else times.committing,
                    ended=times.ended,
                    contexts=found.contexts,
                    message_count=found.records,
                    error=type(result).__name__ if base_offset is None else None,
                )
            )

    # Batches that are fetched

    def fetched(self, batches: Sequence[FetchedBatches], client: str | None, *, started: int) -> None:
        ended = self.now()
        for each in batches:
            self._worker.submit(partial(self._trace_fetch, each, client, started, ended), len(each.data))

    def _trace_fetch(self, batches: FetchedBatches, client: str | None, started: int, ended: int) -> None:
        found = contexts_in_slice(batches.data, batches.wanted)
        if found.contexts:
            self._spans.record(
                Transit(
                    step=TransitStep.FETCH,
                    destination=batches.topic,
                    partition=batches.partition,
                    started=started,
                    ended=ended,
                    contexts=found.contexts,
                    message_count=found.records,
                    client=None if client is None else _text(client),
                )
            )

    # Messages that queues hand out

    def delivered(self, queue: str, messages: Sequence[DeliveredMessage]) -> None:
        # A search in a few bytes costs less than a job for messages that carry no context.
        carrying = [
            Delivered(
                message.topic,
                message.source.index,
                message.offset,
                message.timestamp,
                message.headers,
                message.redelivered,
            )
            for message in messages
            if TRACEPARENT in message.headers
        ]
        if carrying:
            size = sum(len(each.headers) for each in carrying)
            self._worker.submit(
                partial(self._trace_delivery, queue, carrying, len(messages), self.now()), size
            )

    def _trace_delivery(self, queue: str, carrying: Sequence[Delivered], count: int, now: int) -> None:
        contexts = contexts_of_delivery(carrying, now // 1_000_000)
        if contexts:
            self._spans.record(
                Transit(
                    step=TransitStep.DELIVER,
                    destination=_text(queue),
                    started=now,
                    ended=now,
                    contexts=contexts,
                    message_count=count,
                )
            )


def _held_by(batches: Sequence[Produced]) -> int:
    """Bytes that stay in memory with them: batches are views of a request, and keep all of it."""
    requests = {id(each.batch.obj): cast("bytearray", each.batch.obj) for each in batches}
    return sum(map(len, requests.values()))


def _text(name: str) -> str:
    """Clients may choose names that are not valid Unicode; one of them would spoil a whole export."""
    return name.encode(errors="replace").decode()


def check_tracing_installed() -> None:
    """Raises InvalidConfig."""
    try:
        # Imported only where tracing is on: the extra is optional, and takes long to import.
        import posthouse.tracing.exporting
        import posthouse.tracing.message_spans  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("opentelemetry"):
            raise
        raise InvalidConfig(
            "tracing is on, but OpenTelemetry is not installed: pip install 'posthouse[tracing]', or set "
            "tracing to off"
        ) from None


def tracing_of_environment() -> Tracing:
    """Exports as OpenTelemetry's variables say. Raises InvalidConfig, also where it is not installed."""
    check_tracing_installed()
    from posthouse.tracing.exporting import provider_of
    from posthouse.tracing.message_spans import MessageSpans

    provider = provider_of()
    return Tracing(MessageSpans(provider), provider.shutdown)
