"""Executors in processes of their own read objects of a real S3 server."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from posthouse.client import Client
from tests.consolidated import consolidate
from tests.postgres import MIGRATED, PostgresServer, cluster_only, new_database
from tests.s3 import S3Server, running_s3
from tests.served import ServedBroker
from tests.spark.segments.spark_driver import ARCHIVE, EXECUTORS, STREAM, SparkDriver, spark_driver

pytestmark = [cluster_only, pytest.mark.xdist_group("spark-cluster"), pytest.mark.timeout(600)]

ROWS, TAIL = 150_000, 100
VALUE = b"x" * 200
PIECES = {"minPartitions": "8"}
PREFIX = "cluster"


@dataclass(frozen=True, slots=True)
class Place:
    broker: ServedBroker
    store: S3Server
    spark: SparkDriver
    expected: dict[str, Any]
    """What is read from the broker."""

    def own_address(self, prefix: str) -> str:
        """As pyarrow writes it."""
        endpoint = f"{self.store.host}:{self.store.port}"
        return f"s3://posthouse/{prefix}?region=us-east-1&scheme=http&endpoint_override={endpoint}"

    def records_from_broker(self) -> float:
        """How many it has sent to clients since it started."""
        text = httpx.get(f"http://{self.broker.admin}/metrics", timeout=30).text
        sent = re.search(r'^posthouse_topic_records_out_total\{topic="orders"\} (.+)$', text, re.MULTILINE)
        assert sent is not None, "the broker counts no records of the topic"
        return float(sent[1])

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.broker.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100


@pytest.fixture(scope="module")
def place(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One for all: it takes its time to start."""
    directory = tmp_path_factory.mktemp("local-cluster")
    with new_database(postgres, MIGRATED) as database, running_s3() as store:
        objects = store.url(PREFIX)
        broker = ServedBroker(directory / "data", database=database, objects=objects, cache_bytes=16 << 20)
        try:
            fill(broker.bootstrap, ROWS)
            consolidate(database, objects)
            fill(broker.bootstrap, TAIL)
            with spark_driver("local-cluster[2,1,1024]", broker.bootstrap, directory) as spark:
                yield Place(broker, store, spark, spark.read(readObjects="false"))
        finally:
            broker.kill()


def fill(bootstrap: str, rows: int) -> None:
    with Client(bootstrap) as client:
        if "orders" not in [each.name for each in client.topics()]:
            client.create_topic("orders", partitions=2)
        with client.producer("orders") as producer:
            for number in range(rows):
                producer.send(VALUE, key=b"%d" % number)


def check(place: Place, found: dict[str, Any]) -> None:
    assert (found["rows"], found["digest"]) == (place.expected["rows"], place.expected["digest"])
    assert "instead of an object" not in place.spark.warnings


def test_rows_of_a_query(place: Place) -> None:
    assert place.expected["rows"] == ROWS + TAIL
    assert len(place.spark.call(EXECUTORS, **PIECES)) == 2
    before = place.cpu_seconds()
    check(place, place.spark.read(readObjects="false", **PIECES))
    by_broker = place.cpu_seconds() - before
    before = place.cpu_seconds()
    check(place, place.spark.read(**PIECES))
    by_objects = place.cpu_seconds() - before
    assert by_objects < by_broker / 2, f"{by_objects:.2f} s of CPU instead of {by_broker:.2f} s"
    check(place, place.spark.read(objectStore=place.own_address(PREFIX), **PIECES))


def test_rows_of_a_stream(place: Place, tmp_path: Path) -> None:
    options = {"checkpoint": str(tmp_path / "checkpoint"), "maxOffsetsPerTrigger": str(ROWS // 2)}
    found = place.spark.call(STREAM, **options)
    assert found["batches"] >= 2
    check(place, found)


def test_the_archive_job(place: Place) -> None:
    """From objects of the server into files on the same server. Only the tail comes from the broker."""
    before = place.records_from_broker()
    found = place.spark.call(ARCHIVE, place=place.own_address("archive"))
    assert found["archived"] == ROWS + TAIL
    assert place.records_from_broker() - before < ROWS / 10
    check(place, found)
