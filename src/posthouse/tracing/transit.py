"""One step of messages through the broker, as spans tell of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from posthouse.tracing.trace_contexts import Occurrence, TraceContext


class TransitStep(Enum):
    """By the broker's name for it."""

    SEND = "send"
    """A producer or publisher sends; ends when the batch is durable."""
    FETCH = "fetch"
    """A client fetches from a partition; ends when the response is complete."""
    DELIVER = "deliver"
    """A queue or stream hands messages to a consumer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transit:
    """Messages that took a step together: a batch, a fetched partition, a hand of messages."""

    step: TransitStep
    destination: str
    partition: int | None = None
    started: int
    """This and other times are nanoseconds since the epoch."""
    ended: int
    committing: int | None = None
    """When storage got the batch."""
    contexts: Mapping[TraceContext, Occurrence]
    """Never empty."""
    message_count: int
    """With those that have no trace context."""
    error: str | None = None
    """The kind of error that refused the messages."""
    client: str | None = None
