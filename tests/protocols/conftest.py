"""Event loops and a broker in memory for the tests of every protocol; each protocol adds its connections."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import uvloop

from posthouse.testing import AsyncBroker

_ON_BOTH_LOOPS = ("test_back_pressure", "test_bad_input", "test_connection")


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
    """With a listener of every protocol."""
    async with AsyncBroker() as running:
        yield running
