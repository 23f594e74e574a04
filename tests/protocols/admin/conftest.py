"""A broker with an HTTP client and an AMQP channel."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aio_pika
import httpx
import pytest
from aio_pika.abc import AbstractRobustChannel

from posthouse.testing import AsyncBroker


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    broker: AsyncBroker
    http: httpx.AsyncClient
    channel: Any
    """Of aio-pika, with confirms."""

    async def publish(self, *bodies: bytes, key: str = "q", exchange: str = "", **properties: Any) -> None:
        to = await self.channel.get_exchange(exchange) if exchange else self.channel.default_exchange
        for body in bodies:
            await to.publish(aio_pika.Message(body, **properties), routing_key=key)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with (
        AsyncBroker() as broker,
        httpx.AsyncClient(base_url=f"http://{broker.admin}") as http,
        await aio_pika.connect_robust(f"amqp://guest:guest@{broker.amqp}/") as connection,
    ):
        channel: AbstractRobustChannel = await connection.channel()
        yield Scene(broker=broker, http=http, channel=channel)
