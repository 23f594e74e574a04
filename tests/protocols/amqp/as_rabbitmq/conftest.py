"""The broker whose behaviour is compared, and clients of it.

Every test in this directory must hold of RabbitMQ 3.10 as well: `make as-rabbitmq` starts one and runs them
against it. Without, they run against Posthouse.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from posthouse.testing import AsyncBroker
from tests.protocols.amqp.as_rabbitmq.client import Client

OTHER = os.environ.get("POSTHOUSE_TEST_AMQP")

Connect = Callable[..., Awaitable[Client]]


@pytest.fixture
async def address() -> AsyncIterator[tuple[str, int]]:
    if OTHER:
        host, _, port = OTHER.rpartition(":")
        yield host, int(port)
        return
    async with AsyncBroker() as running:
        listening = running.app.listeners["amqp"]
        yield listening.host, listening.port


@pytest.fixture
async def connect(address: tuple[str, int]) -> AsyncIterator[Connect]:
    """Opens connections, with channels from 1 on; closes what a test leaves open."""
    clients: list[Client] = []

    async def opened(channels: int = 2, **options: Any) -> Client:
        clients.append(Client(*address))
        return await clients[-1].start(channels, **options)

    yield opened
    for client in clients:
        client.writer.close()


@pytest.fixture
async def client(connect: Connect) -> Client:
    return await connect()
