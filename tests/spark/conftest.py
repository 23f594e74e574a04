"""One Spark for all tests of a process, and a broker for each."""

import os
from collections.abc import Iterator

import pytest

from posthouse.client import Client
from posthouse.testing import ThreadBroker, running_broker

pyspark = pytest.importorskip("pyspark", reason="needs the extra 'spark'")

from pyspark.sql import SparkSession  # noqa: E402


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from tests.spark.sessions import make_session

    made = make_session()
    yield made
    made.stop()


@pytest.fixture
def classic() -> None:
    """For tests that look at what Spark Connect does not show, such as the Spark context."""
    if os.environ.get("POSTHOUSE_SPARK_SESSION") == "connect":
        pytest.skip("Spark Connect does not show this")


@pytest.fixture
def tuned() -> None:
    """For tests of our own session and its settings."""
    if os.environ.get("POSTHOUSE_SPARK_SESSION", "tuned") != "tuned":
        pytest.skip("only for posthouse.spark.session")


@pytest.fixture
def untuned() -> None:
    """For tests that only show something on sessions which are not ours."""
    if os.environ.get("POSTHOUSE_SPARK_SESSION", "tuned") == "tuned":
        pytest.skip("only for sessions with nothing set")


@pytest.fixture
def broker() -> Iterator[ThreadBroker]:
    with running_broker() as running:
        yield running


@pytest.fixture
def client(broker: ThreadBroker) -> Iterator[Client]:
    with Client(broker.kafka) as made:
        yield made
