"""The brokers that client libraries talk to, one for each module."""

import os
from collections.abc import Iterator

import pytest

from posthouse.testing import running_broker
from tests.clients.amqp.rabbit import Rabbit

OTHER = os.environ.get("POSTHOUSE_TEST_AMQP")


@pytest.fixture(scope="module", params=["memory", "file"])
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap address."""
    data = tmp_path_factory.mktemp("data") if request.param == "file" else None
    with running_broker(data=data) as broker:
        yield broker.kafka


@pytest.fixture(scope="module")
def rabbit() -> Iterator[Rabbit]:
    """Posthouse in memory, or the broker that the environment names."""
    if OTHER:
        yield Rabbit(address=OTHER, kafka=None)
        return
    with running_broker() as broker:
        yield Rabbit(address=broker.amqp, kafka=broker.kafka)


@pytest.fixture
def posthouse_only(rabbit: Rabbit) -> None:
    if rabbit.kafka is None:
        pytest.skip("asked of Posthouse alone: RabbitMQ does not have it, or it is not ours to restart")
