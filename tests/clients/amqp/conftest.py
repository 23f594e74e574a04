"""Connections of pika.

Every test here must hold of RabbitMQ as well. To see that it does, run one on loopback and name it:

    POSTHOUSE_TEST_AMQP=127.0.0.1:5672 pytest tests/clients/amqp
"""

from collections.abc import Iterator
from typing import Any

import pika
import pytest

from tests.clients.amqp.rabbit import Rabbit
from tests.clients.amqp.streams import declare


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


@pytest.fixture
def stream(channel: Any, name: str) -> Iterator[str]:
    declare(channel, name)
    yield name
    if channel.is_open:
        channel.queue_delete(name)
