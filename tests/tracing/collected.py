"""Spans that a broker in the test has made, and trace contexts to give to it."""

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext

from posthouse.tracing.message_spans import MessageSpans
from posthouse.tracing.tracing import Tracing

SECONDS = 60.0
"""How long anything may take that must happen."""


@dataclass(frozen=True, slots=True)
class Parent:
    """The span of an application that sends a message."""

    trace: int = field(default_factory=lambda: secrets.randbits(128) | 1)
    span: int = field(default_factory=lambda: secrets.randbits(64) | 1)
    sampled: bool = True

    @property
    def header(self) -> str:
        return f"00-{self.trace:032x}-{self.span:016x}-{'01' if self.sampled else '00'}"


class Collected:
    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def tracing(self) -> Tracing:
        return Tracing(MessageSpans(self.provider), self.provider.shutdown)

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def children(self, parent: Parent) -> list[ReadableSpan]:
        return [span for span in self.spans if is_child(span, parent)]

    def wait(
        self, name: str, count: int = 1, when: Callable[[ReadableSpan], bool] = bool
    ) -> list[ReadableSpan]:
        """Of this name, at least `count`."""
        deadline = time.monotonic() + SECONDS
        while len(found := [span for span in self.named(name) if when(span)]) < count:
            assert time.monotonic() < deadline, (
                f"{len(found)} of {name}; {[span.name for span in self.spans]}"
            )
            time.sleep(0.02)
        return found


def is_child(span: ReadableSpan, parent: Parent) -> bool:
    found = span.parent
    return found is not None and (found.trace_id, found.span_id) == (parent.trace, parent.span)


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def context(span: ReadableSpan) -> SpanContext:
    found = span.get_span_context()
    assert found is not None
    return found
