"""What a webhook has done since the broker has started: kept while its definition changes."""

from collections import deque
from typing import Final

from posthouse.broker.webhooks.state import CircuitState, Failure, WebhookState
from posthouse.model.histogram import Histogram

_REMEMBERED: Final = 100
"""Requests that the success rate is about."""


class Tally:
    def __init__(self) -> None:
        self.delivered = 0
        self.retried = 0
        self.dead = 0
        self.requests = 0
        self.failed_requests = 0
        self.in_flight = 0
        self.last_success_ms: int | None = None
        self.last_failure: Failure | None = None
        self.trouble: str | None = None
        self.seconds = Histogram()
        self._recent: deque[bool] = deque(maxlen=_REMEMBERED)

    def answered(self, seconds: float) -> None:
        self.seconds.observe(seconds)

    def succeeded(self, messages: int, now_ms: int) -> None:
        self.requests += 1
        self.delivered += messages
        self.last_success_ms = now_ms
        self._recent.append(True)

    def failed(self, failure: Failure) -> None:
        self.requests += 1
        self.failed_requests += 1
        self.last_failure = failure
        self._recent.append(False)

    def state(
        self, circuit: CircuitState, *, circuit_until_ms: int | None, waits_until_ms: int | None
    ) -> WebhookState:
        recent = self._recent
        return WebhookState(
            circuit=circuit,
            circuit_until_ms=circuit_until_ms,
            waits_until_ms=waits_until_ms,
            in_flight=self.in_flight,
            delivered=self.delivered,
            retried=self.retried,
            dead=self.dead,
            requests=self.requests,
            failed_requests=self.failed_requests,
            success_rate=sum(recent) / len(recent) if recent else None,
            last_success_ms=self.last_success_ms,
            last_failure=self.last_failure,
            trouble=self.trouble,
            seconds=self.seconds,
        )
