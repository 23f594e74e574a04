"""The broker that frameworks for AMQP talk to."""

from collections.abc import Iterator

import pytest

from posthouse.testing import running_broker
from tests.clients.amqp.rabbit import Rabbit


@pytest.fixture(scope="module")
def rabbit() -> Iterator[Rabbit]:
    with running_broker() as broker:
        yield Rabbit(address=broker.amqp, kafka=broker.kafka)
