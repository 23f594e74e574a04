"""Executors of a standalone Spark cluster read objects over a network, also when parts of it are away."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from posthouse.client import Client
from tests.directories import IN_MEMORY
from tests.postgres import cluster_only
from tests.s3 import need_s3
from tests.spark.segments.hosts import BROKERS, STORE, WORKERS, Hosts, spark_hosts
from tests.spark.segments.spark_driver import EXECUTORS, SparkDriver, spark_driver
from tests.torture.network.namespaces import why_not

pytestmark = [cluster_only, pytest.mark.xdist_group("spark-cluster"), pytest.mark.timeout(900)]

ROWS, TAIL = 100_000, 100
VALUE = b"x" * 300
PIECES = {"minPartitions": "8"}
HISTORY = {"endingOffsets": json.dumps({"orders": {"0": ROWS // 2, "1": ROWS // 2}})}
CACHE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Place:
    hosts: Hosts
    spark: SparkDriver


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    need_s3()
    if (reason := why_not()) is not None:
        pytest.skip(f"network namespaces cannot be made here: {reason}")
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(dir=IN_MEMORY, prefix="posthouse-net-")))
        directory.chmod(0o755)  # PostgreSQL runs as another user
        hosts = stack.enter_context(spark_hosts(tmp_path, directory, cache_bytes=CACHE_BYTES))
        with hosts.at_driver():
            _fill(hosts.bootstrap, ROWS)
        hosts.consolidate()
        with hosts.at_driver():
            _fill(hosts.bootstrap, TAIL)
            spark = stack.enter_context(spark_driver(hosts.master, hosts.bootstrap, tmp_path, hosts.conf))
        yield Place(hosts, spark)


def _fill(bootstrap: str, rows: int) -> None:
    with Client(bootstrap) as client:
        if "orders" not in [each.name for each in client.topics()]:
            client.create_topic("orders", partitions=2)
        info = client.topic("orders")
        for partition in range(info.partitions):
            with client.producer("orders") as producer:
                for number in range(rows // 2):
                    producer.send(VALUE, key=b"%d" % number, partition=partition)


def test_objects_over_a_network(place: Place) -> None:
    hosts, spark = place.hosts, place.spark
    assert len(spark.call(EXECUTORS, **PIECES)) == len(WORKERS)
    expected = spark.read(readObjects="false", **PIECES)
    assert expected["rows"] == ROWS + TAIL

    before = hosts.cpu_seconds()
    _same(expected, spark.read(readObjects="false", **PIECES))
    by_broker = hosts.cpu_seconds() - before
    before = hosts.cpu_seconds()
    _same(expected, spark.read(**PIECES))
    by_objects = hosts.cpu_seconds() - before
    assert by_objects < by_broker / 2, f"{by_objects:.2f} s of CPU instead of {by_broker:.2f} s"
    assert "instead of an object" not in spark.warnings

    # Executors that reach no broker read history all the same.
    history = spark.read(readObjects="false", **HISTORY)
    for worker in WORKERS:
        for broker in BROKERS:
            hosts.cut(worker, broker)
    _same(history, spark.read(**PIECES, **HISTORY))
    assert "instead of an object" not in spark.warnings
    hosts.network.heal()

    # A worker that does not reach the store reads from brokers.
    hosts.cut(WORKERS[0], STORE)
    _same(expected, spark.read(**PIECES))
    assert "instead of an object" in spark.warnings
    hosts.network.heal()

    # One broker is enough, also while no other one coordinates.
    hosts.brokers[BROKERS[0]].kill()
    _same(expected, spark.read(**PIECES))


def _same(expected: dict[str, Any], found: dict[str, Any]) -> None:
    assert (found["rows"], found["digest"]) == (expected["rows"], expected["digest"])
