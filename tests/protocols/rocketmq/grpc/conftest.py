"""Brokers that serve RocketMQ's clients by both protocols."""

from collections.abc import AsyncIterator

import pytest

from posthouse.app import App
from posthouse.model.clock import ManualClock
from posthouse.model.ids import GroupId
from posthouse.settings import Address
from posthouse.storage.memory.engine import MemoryStorage
from posthouse.testing import AsyncBroker
from posthouse.testing.listener_addresses import ListenerAddresses
from tests.protocols.rocketmq.grpc.messaging_client import MessagingClient
from tests.served import on_any_port

ANY_PORT = Address("127.0.0.1", 0)


class StillBroker(ListenerAddresses):
    """Its time goes on only when a test turns the clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        settings = on_any_port(memory=True, audit=None, rocketmq=ANY_PORT, rocketmq_grpc=ANY_PORT)
        self.app = App(settings, clock=self.clock, storage=MemoryStorage(self.clock))

    def address(self, listener: str) -> str:
        return str(self.app.listeners[listener])

    async def advance(self, seconds: float) -> None:
        """Leases that are over then are released, and half messages are checked."""
        self.clock.advance(seconds)
        await self.app.broker.subscriptions.tick()
        await self.app.broker.half_messages.check()


async def configure(broker: "AsyncBroker | StillBroker", group: str, **settings: str) -> None:
    """Settings of a group, with underscores."""
    wanted = {name.replace("_", "."): value for name, value in settings.items()}
    await broker.app.broker.group_configs.change(GroupId(group), lambda own: {**own, **wanted})


@pytest.fixture
async def broker() -> AsyncIterator[AsyncBroker]:
    async with AsyncBroker(rocketmq=ANY_PORT, rocketmq_grpc=ANY_PORT) as running:
        yield running


@pytest.fixture
async def client(broker: AsyncBroker) -> AsyncIterator[MessagingClient]:
    async with client_of(broker) as connected:
        yield connected


@pytest.fixture
async def still() -> AsyncIterator[StillBroker]:
    broker = StillBroker()
    await broker.app.start()
    try:
        yield broker
    finally:
        await broker.app.stop()


def client_of(broker: ListenerAddresses, id: str | None = "client", namespace: str = "") -> MessagingClient:
    return MessagingClient(broker.address("rocketmq_grpc"), id, namespace=namespace)
