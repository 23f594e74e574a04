"""A webhook is no way into the broker's own network, whatever a name or an endpoint says."""

import pytest

from posthouse.model.clock import SystemClock
from posthouse.model.errors import InvalidWebhook
from posthouse.testing import AsyncBroker
from posthouse.webhooks.pushing import Pushing
from tests.webhooks.receivers import Reply, pushing_broker, receiver
from tests.webhooks.scenes import create_topic, lag, produce, until, webhook


async def _last_reason(started: AsyncBroker) -> str:
    def failed() -> bool:
        state = started.app.broker.webhooks.state("hook")
        return state is not None and state.last_failure is not None

    await until(failed)
    state = started.app.broker.webhooks.state("hook")
    assert state is not None and state.last_failure is not None
    return state.last_failure.reason


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "0x7f.1", "2130706433", "[::ffff:127.0.0.1]"]
)
async def test_this_machine_gets_nothing_unless_it_is_allowed(host: str) -> None:
    async with AsyncBroker() as started, receiver() as endpoint:
        broker = started.app.broker
        await create_topic(broker)
        await broker.webhooks.create(webhook(f"http://{host}:{endpoint.port}/"))
        await produce(broker, (None, b"1"))
        reason = await _last_reason(started)
        assert "which is not public" in reason or "has no address" in reason
        assert endpoint.connections == 0


async def test_a_redirect_is_not_followed() -> None:
    async with receiver() as inside:
        to_inside = Reply(status=307, headers=(("location", inside.url),))
        async with pushing_broker() as started, receiver(lambda _: to_inside) as endpoint:
            broker = started.app.broker
            await create_topic(broker)
            await broker.webhooks.create(webhook(endpoint.url))
            await produce(broker, (None, b"1"))
            await until(lambda: lag(broker) == 0)
            assert len(endpoint.received) == 5
            assert inside.connections == 0
            assert "redirects are not followed" in await _last_reason(started)


async def test_a_name_that_points_inside_later_is_not_connected_to() -> None:
    """DNS rebinding: what counts is the address of this connection."""
    answers = [["127.0.0.1"]]
    asked: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return answers[0]

    async with AsyncBroker(webhook_allow=("127.0.0.1/32",)) as started:
        broker = started.app.broker
        broker.webhooks.start_pushing(
            lambda: Pushing(broker, started.app.settings, SystemClock(), resolve=resolve)
        )
        async with receiver(lambda _: Reply(headers=(("connection", "close"),))) as endpoint:
            await create_topic(broker)
            await broker.webhooks.create(webhook(f"http://shop.example:{endpoint.port}/"))
            await produce(broker, (None, b"1"))
            [received] = await endpoint.got(1)
            assert received.headers["host"] == f"shop.example:{endpoint.port}"
            answers[0] = ["169.254.169.254"]
            await produce(broker, (None, b"2"))
            assert "169.254.169.254, which is not public" in await _last_reason(started)
            assert endpoint.bodies == [b"1"]
            assert len(asked) >= 2


@pytest.mark.parametrize(
    "url",
    [
        "ftp://shop.example/",
        "https://",
        "https://user:password@shop.example/",
        "https://shop.example/#part",
        "https://shop.example:0/",
        "https://shop.example:99999/",
        "https://shop.example/a b",
        "https://shop.example/\r\nx: y",
        "//shop.example/",
        "shop.example",
        "https://shöp.example/",
    ],
)
async def test_wrong_urls_are_refused(url: str) -> None:
    async with AsyncBroker() as started:
        await create_topic(started.app.broker)
        with pytest.raises(InvalidWebhook):
            await started.app.broker.webhooks.create(webhook(url))
