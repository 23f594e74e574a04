"""A broker in memory and a raw connection to it."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest
import uvloop

sys.path.insert(0, str(Path(__file__).parents[3]))

from posthouse.testing import AsyncBroker
from tests.protocols.kafka.wire import Wire

_ON_BOTH_LOOPS = ("test_connection", "test_bad_input")


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
    async with AsyncBroker() as running:
        yield running


@pytest.fixture
async def wire(broker: AsyncBroker) -> AsyncIterator[Wire]:
    async with Wire(broker.kafka) as connected:
        yield connected
