"""A raw connection to the broker, and one with a channel."""

from collections.abc import AsyncIterator

import pytest

from posthouse.testing import AsyncBroker
from tests.protocols.amqp.wire import Wire


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
