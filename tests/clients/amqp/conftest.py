"""The broker that the tests talk to, connections to it, and names that no other test uses.

Every test here must hold of RabbitMQ as well. To see that it does, run one on loopback and name it:

    POSTHOUSE_TEST_AMQP=127.0.0.1:5672 pytest tests/clients/amqp
"""

import os
import uuid
from collections.abc import Iterator
from typing import Any

import pika
import pytest

from posthouse.settings import Address
from posthouse.testing import running_broker
from tests.clients.amqp.rabbit import Rabbit

OTHER = os.environ.get("POSTHOUSE_TEST_AMQP")


@pytest.fixture(scope="module")
def rabbit() -> Iterator[Rabbit]:
    """Posthouse in memory, or the broker that the environment names."""
    if OTHER:
        yield Rabbit(address=OTHER, kafka=None)
        return
    with running_broker(amqp=Address("127.0.0.1", 0)) as broker:
        yield Rabbit(address=broker.amqp, kafka=broker.kafka)


@pytest.fixture
def posthouse_only(rabbit: Rabbit) -> None:
    if rabbit.kafka is None:
        pytest.skip("asked of Posthouse alone: RabbitMQ does not have it, or it is not ours to restart")


@pytest.fixture
def name() -> str:
    """What a test calls its things after; a shared RabbitMQ has those of earlier runs."""
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def connection(rabbit: Rabbit) -> Iterator[Any]:
    """pika's, blocking."""
    made = pika.BlockingConnection(pika.URLParameters(rabbit.url))
    yield made
    if made.is_open:
        made.close()


@pytest.fixture
def channel(connection: Any) -> Any:
    """With publisher confirms: when a publish returns, the message is in its queues."""
    made = connection.channel()
    made.confirm_delivery()
    return made
