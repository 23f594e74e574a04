"""Spans of one transit, with the attributes of OpenTelemetry's conventions for messaging.

Every trace context gets a span that is its child. One of the spans leads: the commit of the batch is its
child, and the other spans link to it. Where the contexts belong to several traces, the leading span has a
trace of its own and links to all of them.
"""

from collections.abc import Sequence
from typing import Final

from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import (
    Link,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from posthouse import __version__
from posthouse.tracing.trace_contexts import Occurrence, TraceContext
from posthouse.tracing.transit import Transit, TransitStep

Attributes = dict[str, str | int | bool]

_SYSTEM: Final = "posthouse"
_TYPES: Final = {TransitStep.SEND: "send", TransitStep.FETCH: "receive", TransitStep.DELIVER: "receive"}
"""OpenTelemetry's types of operations, which are those of clients."""


class MessageSpans:
    """Used by one thread."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer = provider.get_tracer("posthouse", __version__)
        self._propagator = TraceContextTextMapPropagator()

    def record(self, transit: Transit) -> None:
        found = [
            (parent, occurrence)
            for context, occurrence in transit.contexts.items()
            if (parent := self._parent(context)) is not None
        ]
        if not found:
            return
        leader, others = self._leader(transit, found)
        if transit.committing is not None and transit.error is None:
            self._commit(transit, leader, transit.committing)
        context = leader.get_span_context()
        links = [Link(context)] if leader.is_recording() else []
        for parent, occurrence in others:
            self._end(self._start(transit, parent, occurrence, occurrence.count, links), transit)
        self._end(leader, transit)

    def _parent(self, context: TraceContext) -> Context | None:
        carrier = {
            "traceparent": context.traceparent.decode("latin-1"),
            "tracestate": context.tracestate.decode("latin-1"),
        }
        parent = self._propagator.extract(carrier, Context())
        of_span = get_current_span(parent).get_span_context()
        return parent if of_span.is_valid and of_span.trace_flags.sampled else None

    def _leader(
        self, transit: Transit, found: list[tuple[Context, Occurrence]]
    ) -> tuple[Span, list[tuple[Context, Occurrence]]]:
        """The span that leads, and what is left for other spans."""
        contexts = [_span_context(parent) for parent, _ in found]
        count = transit.message_count
        if len({context.trace_id for context in contexts}) == 1:
            (parent, occurrence), *others = found
            return self._start(transit, parent, occurrence, count, ()), others
        links = [
            Link(context, occurrence.attributes)
            for context, (_, occurrence) in zip(contexts, found, strict=True)
        ]
        return self._start(transit, Context(), None, count, links), found

    def _start(
        self,
        transit: Transit,
        parent: Context,
        occurrence: Occurrence | None,
        count: int,
        links: Sequence[Link],
    ) -> Span:
        step = transit.step
        attributes: Attributes = {
            "messaging.system": _SYSTEM,
            "messaging.operation.name": step.value,
            "messaging.operation.type": _TYPES[step],
            "messaging.destination.name": transit.destination,
        }
        if transit.partition is not None:
            attributes["messaging.destination.partition.id"] = str(transit.partition)
        if transit.client:
            attributes["messaging.client.id"] = transit.client
        if count > 1:
            attributes["messaging.batch.message_count"] = count
        if occurrence is not None:
            attributes.update(occurrence.attributes)
        return self._tracer.start_span(
            f"{step.value} {transit.destination}",
            parent,
            SpanKind.SERVER,
            attributes,
            links,
            start_time=transit.started,
        )

    def _commit(self, transit: Transit, leader: Span, started: int) -> None:
        """Writing and syncing the batch, together with all that the same group commit holds."""
        span = self._tracer.start_span(
            f"commit {transit.destination}",
            set_span_in_context(leader, Context()),
            SpanKind.INTERNAL,
            {"messaging.system": _SYSTEM, "messaging.destination.name": transit.destination},
            start_time=started,
        )
        span.end(transit.ended)

    def _end(self, span: Span, transit: Transit) -> None:
        if transit.error is not None:
            span.set_attribute("error.type", transit.error)
            span.set_status(Status(StatusCode.ERROR))
        span.end(transit.ended)


def _span_context(parent: Context) -> SpanContext:
    return get_current_span(parent).get_span_context()
