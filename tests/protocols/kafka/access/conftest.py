"""A broker whose users have to log in; the roles of the table are there."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from posthouse.testing import AsyncBroker
from tests.protocols.kafka.access.scene import add_roles, secured


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[AsyncBroker]:
    async with secured(tmp_path) as running:
        await add_roles(running.app.broker)
        yield running
