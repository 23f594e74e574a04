"""Batches whose records cannot be decoded: their producer compressed them wrongly."""

from typing import Any

import pytest

from posthouse.broker.appending import Produced
from tests.broker.subscriptions.bench import damaged
from tests.webhooks.receivers import pushing_broker, receiver
from tests.webhooks.scenes import create_topic, headers_of, lag, produce, records, until, webhook


@pytest.mark.parametrize("fields", [{}, {"ordered": True}, {"filter": "a = 'b'"}])
async def test_what_is_written_behind_them_is_pushed_and_they_are_dead_letters(fields: Any) -> None:
    async with pushing_broker() as started, receiver() as endpoint:
        broker = started.app.broker
        await create_topic(broker)
        batch = damaged(b"x", b"y", b"z")
        await produce(broker, (b"k", b"before"), headers=[(b"a", b"b")])
        await broker.append([Produced(broker.topic("orders"), 0, memoryview(batch))]).wait()
        await produce(broker, (b"k", b"behind"), headers=[(b"a", b"b")])
        await broker.webhooks.create(webhook(endpoint.url, **fields))
        await until(lambda: lag(broker) == 0)
        assert endpoint.bodies == [b"before", b"behind"]
        [dead] = await records(broker, "dlq.webhook.hook")
        assert dead.value[61:] == batch[61:], "the whole batch as it is stored"
        headers = headers_of(dead)
        assert headers["posthouse.dead-offset"] == "1"
        assert "gzip" in headers["posthouse.unreadable-batch"]
        state = broker.webhooks.state("hook")
        assert state is not None and state.dead == 1
        assert state.last_failure is not None
        assert "orders-0 from offset 1 on cannot be decoded" in state.last_failure.reason
