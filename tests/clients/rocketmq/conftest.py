"""A broker that serves RocketMQ's clients in other languages than Java, whose tests are in `tests/java`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from posthouse.settings import Address
from posthouse.testing import ThreadBroker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ThreadBroker]:
    with ThreadBroker(data=tmp_path / "data", rocketmq=Address("127.0.0.1", 0)) as running:
        yield running
