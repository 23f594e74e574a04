"""A raw connection to the broker."""

from collections.abc import AsyncIterator

import pytest

from posthouse.testing import AsyncBroker
from tests.protocols.kafka.wire import Wire


@pytest.fixture
async def wire(broker: AsyncBroker) -> AsyncIterator[Wire]:
    async with Wire(broker.kafka) as connected:
        yield connected
