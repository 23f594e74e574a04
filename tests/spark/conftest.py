"""One Spark for all tests of a process, and a broker for each."""

import os
import sys
from collections.abc import Iterator

import pytest

from posthouse.client import Client
from posthouse.testing import ThreadBroker, running_broker

pyspark = pytest.importorskip("pyspark", reason="needs the extra 'spark'")

from pyspark.sql import SparkSession  # noqa: E402


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two cores; a task may fail twice before its job does."""
    from posthouse.spark.session import session

    os.environ["PYSPARK_PYTHON"] = sys.executable
    made = session(
        "posthouse tests",
        master="local[2,3]",
        conf={
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.python.filterPushdown.enabled": "true",
            "spark.driver.memory": "1g",
        },
    )
    yield made
    made.stop()


@pytest.fixture
def broker() -> Iterator[ThreadBroker]:
    with running_broker() as running:
        yield running


@pytest.fixture
def client(broker: ThreadBroker) -> Iterator[Client]:
    with Client(broker.kafka) as made:
        yield made
