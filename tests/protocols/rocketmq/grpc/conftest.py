"""Brokers that serve RocketMQ's clients by both protocols."""

from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import Self

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
    """Its time goes on only when a test turns the clock. Without a directory all is in memory."""

    def __init__(self, data: Path | None = None, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        ports = {"rocketmq": ANY_PORT, "rocketmq_grpc": ANY_PORT, "audit": None}
        if data is None:
            storage = MemoryStorage(self.clock)
            self.app = App(on_any_port(memory=True, **ports), clock=self.clock, storage=storage)
        else:
            self.app = App(on_any_port(data=data, **ports), clock=self.clock)

    async def __aenter__(self) -> Self:
        await self.app.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.app.stop()

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
    async with StillBroker() as broker:
        yield broker


def client_of(broker: ListenerAddresses, id: str | None = "client", namespace: str = "") -> MessagingClient:
    return MessagingClient(broker.address("rocketmq_grpc"), id, namespace=namespace)
