"""Brokers that serve RocketMQ, and a log without tracebacks."""

import logging
from collections.abc import AsyncIterator, Iterator

import pytest

from posthouse.listener_settings import Address
from posthouse.testing import AsyncBroker
from tests.protocols.rocketmq.remoting_client import RemotingClient, client_of

ROCKETMQ = Address("127.0.0.1", 0)


@pytest.fixture
async def broker() -> AsyncIterator[AsyncBroker]:
    async with AsyncBroker(rocketmq=ROCKETMQ) as running:
        yield running


@pytest.fixture
async def client(broker: AsyncBroker) -> AsyncIterator[RemotingClient]:
    async with client_of(broker) as connected:
        yield connected


@pytest.fixture(autouse=True)
def no_tracebacks(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever clients send: no error of the broker itself, and no task that ends in one."""
    yield
    for record in caplog.get_records("call"):
        assert record.levelno < logging.ERROR and record.exc_info is None, record.getMessage()
