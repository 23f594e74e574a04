"""A place for an archive, who archives and who writes."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from posthouse.spark.archive import Archiver
from posthouse.spark.archive.job import Limits
from posthouse.testing import ThreadBroker


@pytest.fixture
def in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark makes local times."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "archive")


@pytest.fixture
def archiver(spark: SparkSession, broker: ThreadBroker, place: str) -> Archiver:
    return Archiver(spark, broker.kafka, place, limits=Limits(largest_piece=200))


@pytest.fixture
def writer(broker: ThreadBroker) -> Iterator[Producer]:
    yield Producer(
        {"bootstrap.servers": broker.kafka, "log_level": 0, "linger.ms": 5, "enable.idempotence": True}
    )
