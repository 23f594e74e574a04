"""Limits on what the gRPC consumers of a group get together."""

import asyncio

from posthouse.model.ids import GroupId
from posthouse.protocols.rocketmq.grpc.messages.codes import Code
from posthouse.testing import AsyncBroker
from tests.protocols.rocketmq.grpc.conftest import client_of
from tests.protocols.rocketmq.grpc.messaging_client import DEADLINE, MessagingClient, bodies


async def limit(broker: AsyncBroker, **limits: str) -> None:
    overrides = {f"posthouse.delivery.{name}": text for name, text in limits.items()}
    await broker.app.broker.group_configs.replace(GroupId("group"), overrides)


async def test_consumers_together_hold_no_more_than_the_concurrency(
    broker: AsyncBroker, client: MessagingClient
) -> None:
    await limit(broker, concurrency="3")
    sent = [b"%02d" % number for number in range(20)]
    await client.send("orders", *sent)
    async with client_of(broker, "other") as other:
        held = await client.receive("orders", most=2)
        assert len(held) == 2
        rest = await other.receive("orders")
        assert len(rest) == 1
        assert await other.receive("orders") == []
        call = asyncio.create_task(other.receive("orders", wait=20))
        for message in held:
            assert await client.ack("orders", message) == Code.OK
        async with asyncio.timeout(DEADLINE):
            more = await call
        assert 1 <= len(more) <= 2
        await limit(broker)
        more += await other.receive("orders")
        assert len({*bodies(held), *bodies(rest), *bodies(more)}) == 20


async def test_a_rate_counts_all_consumers(broker: AsyncBroker, client: MessagingClient) -> None:
    await limit(broker, rate="1/h")
    await client.send("orders", b"a", b"b")
    async with client_of(broker, "other") as other:
        assert len(await client.receive("orders")) == 1
        assert await other.receive("orders") == []
        await limit(broker)
        assert len(await other.receive("orders")) == 1
