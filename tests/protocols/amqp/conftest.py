"""A broker in memory, a raw connection to it, and one with a channel."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest
import uvloop

sys.path.insert(0, str(Path(__file__).parents[3]))

from posthouse.settings import Address
from posthouse.testing import AsyncBroker
from tests.protocols.amqp.wire import Wire

_ON_BOTH_LOOPS = ("test_connection", "test_back_pressure")


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The broker runs on uvloop; a user's test may run it on the loop of the standard library."""
    factories: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"uvloop": uvloop.new_event_loop}
    if item.path.stem in _ON_BOTH_LOOPS:
        factories["asyncio"] = asyncio.new_event_loop
    return factories


@pytest.fixture
async def broker() -> AsyncIterator[AsyncBroker]:
    async with AsyncBroker(amqp=Address("127.0.0.1", 0)) as running:
        yield running


@pytest.fixture
async def wire(broker: AsyncBroker) -> AsyncIterator[Wire]:
    """An open connection."""
    async with await Wire.to(broker).open() as connected:
        yield connected


@pytest.fixture
async def channel(wire: Wire) -> Wire:
    """An open connection with channel 1."""
    await wire.channel(1)
    return wire
