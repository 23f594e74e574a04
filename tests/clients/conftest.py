"""The brokers that client libraries talk to, one for each module."""

import os
from collections.abc import Iterator

import pytest

from posthouse.testing import running_broker
from tests.clients.amqp.rabbit import Rabbit
from tests.stored import KINDS, stored_in

OTHER = os.environ.get("POSTHOUSE_TEST_AMQP")


@pytest.fixture(scope="session", autouse=True)
def storages(shared_storages: None) -> None:
    """Brokers of all tests here may be started on shared storage."""


@pytest.fixture(scope="module", params=KINDS)
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap address."""
    data = tmp_path_factory.mktemp("data") if request.param == "file" else None
    with running_broker(**stored_in(data)) as broker:
        yield broker.kafka


@pytest.fixture(scope="module")
def rabbit() -> Iterator[Rabbit]:
    """Posthouse in memory (or on shared storage), or the broker that the environment names."""
    if OTHER:
        yield Rabbit(address=OTHER, kafka=None)
        return
    with running_broker(**stored_in()) as broker:
        yield Rabbit(address=broker.amqp, kafka=broker.kafka)


@pytest.fixture
def posthouse_only(rabbit: Rabbit) -> None:
    if rabbit.kafka is None:
        pytest.skip("asked of Posthouse alone: RabbitMQ does not have it, or it is not ours to restart")
