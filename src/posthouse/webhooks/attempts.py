"""One request, and what came of it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from posthouse.broker.queues.record_headers import WEBHOOK
from posthouse.broker.webhooks.definition import Webhook
from posthouse.model.clock import Clock
from posthouse.webhooks.answers import Answer, Verdict
from posthouse.webhooks.delivery import Delivery
from posthouse.webhooks.failures import NoAnswer
from posthouse.webhooks.requests import Request, request_of
from posthouse.webhooks.sender import Sender


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    verdict: Verdict
    reason: str
    answer: Answer | None
    """None if there was none."""
    seconds: float
    wait_seconds: float = 0.0
    """What Retry-After asks for."""

    @property
    def status(self) -> int | None:
        return None if self.answer is None else self.answer.status

    @property
    def shown_body(self) -> str:
        return "" if self.answer is None else self.answer.shown_body

    def notes(self, webhook: str, attempts: int) -> list[tuple[bytes, bytes]]:
        """Headers of a dead letter."""
        return [
            (WEBHOOK + b"name", webhook.encode()),
            (WEBHOOK + b"attempts", b"%d" % attempts),
            (WEBHOOK + b"reason", self.reason.encode()),
            (WEBHOOK + b"status", b"" if self.status is None else b"%d" % self.status),
            (WEBHOOK + b"answer", self.shown_body.encode()),
        ]


async def attempt(webhook: Webhook, sender: Sender, clock: Clock, batch: Sequence[Delivery]) -> Outcome:
    """Never raises but for cancellation."""
    target = webhook.target
    return await sent(webhook, sender, clock, request_of(target.form, batch, is_batch=target.batch > 1))


async def sent(webhook: Webhook, sender: Sender, clock: Clock, request: Request) -> Outcome:
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        answer = await sender.send(request.id, request.headers, request.body, webhook.target.timeout_seconds)
    except NoAnswer as error:
        return Outcome(verdict=Verdict.FAILED, reason=str(error), answer=None, seconds=loop.time() - began)
    return Outcome(
        verdict=answer.verdict,
        reason=answer.reason,
        answer=answer,
        seconds=loop.time() - began,
        wait_seconds=answer.wait_seconds(clock.now_ms()),
    )
