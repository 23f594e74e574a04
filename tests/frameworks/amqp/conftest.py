"""Brokers for frameworks, and names that no other test uses."""

import uuid
from collections.abc import Iterator

import pytest

from posthouse.settings import Address
from posthouse.testing import running_broker
from tests.clients.amqp.rabbit import Rabbit


@pytest.fixture(scope="module")
def rabbit() -> Iterator[Rabbit]:
    with running_broker(amqp=Address("127.0.0.1", 0)) as broker:
        yield Rabbit(address=broker.amqp, kafka=broker.kafka)


@pytest.fixture
def name() -> str:
    return f"test-{uuid.uuid4().hex[:12]}"
