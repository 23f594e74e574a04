"""Mistakes of the broker while a request is made or sent."""

from typing import Any

import pytest

from posthouse.webhooks import endpoint as endpoint_module
from posthouse.webhooks.attempts import Outcome, attempt
from tests.webhooks.receivers import pushing_broker, receiver
from tests.webhooks.scenes import create_topic, headers_of, lag, produce, records, until, webhook


async def test_a_message_that_breaks_its_request_is_retried_with_delays_and_buried(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attempts = 0

    async def broken(hook: Any, sender: Any, clock: Any, batch: Any) -> Outcome:
        nonlocal attempts
        if batch[0].value == b"bad":
            attempts += 1
            raise RuntimeError("on purpose")
        return await attempt(hook, sender, clock, batch)

    monkeypatch.setattr(endpoint_module, "attempt", broken)
    async with pushing_broker() as started, receiver() as endpoint:
        broker = started.app.broker
        await create_topic(broker)
        await broker.webhooks.create(webhook(endpoint.url, concurrency=1))
        await produce(broker, (None, b"bad"), *((None, b"good") for _ in range(3)))
        await until(lambda: lag(broker) == 0)
        assert endpoint.bodies == [b"good"] * 3
        assert attempts == 5, "of QUICK"
        assert caplog.text.count("RuntimeError: on purpose") == 5
        [dead] = await records(broker, "dlq.webhook.hook")
        assert headers_of(dead)["posthouse.webhook-reason"].startswith("the broker failed")
