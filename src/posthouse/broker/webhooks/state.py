"""What operators see of a webhook at work, and the port of the part that pushes."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from posthouse.model.histogram import Histogram


class CircuitState(StrEnum):
    CLOSED = "closed"
    """Requests are sent."""
    OPEN = "open"
    """The endpoint has failed several times in a row: no requests for a while."""
    HALF_OPEN = "half-open"
    """One request is sent, to see whether it works again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The last attempt that failed."""

    at_ms: int
    reason: str
    """A sentence."""
    status: int | None = None
    answer: str = ""
    """The beginning of the body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookState:
    circuit: CircuitState
    circuit_until_ms: int | None
    """When it is tried again; None unless it is open."""
    waits_until_ms: int | None
    """Retry-After of the endpoint."""
    in_flight: int
    """Requests."""
    delivered: int
    """Messages, since the broker has started; so are the following."""
    retried: int
    dead: int
    requests: int
    failed_requests: int
    success_rate: float | None
    """Of the last hundred requests; None before the first."""
    last_success_ms: int | None
    last_failure: Failure | None
    trouble: str | None
    """Why nothing is pushed at all: its topic is gone, its secret cannot be opened."""
    seconds: Histogram
    """Of requests that were answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Of one request with a made-up message."""

    status: int | None
    reason: str
    answer: str
    seconds: float


class Pusher(Protocol):
    """What pushes."""

    def changed(self, name: str) -> None:
        """The webhook was created, changed or deleted."""

    def state(self, name: str) -> WebhookState | None:
        """None if the webhook is unknown, or was just created."""

    async def test(self, name: str) -> Trial: ...

    async def ended(self) -> None:
        """Return when nothing of deleted webhooks is under way."""

    async def stop(self) -> None: ...
