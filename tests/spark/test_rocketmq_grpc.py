"""What a stock gRPC client of RocketMQ sends, in Spark, and rows of Spark as messages for that client."""

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from posthouse.testing import ThreadBroker
from tests.clients.rocketmq.grpc_steps import check_done, grpc_broker, run_program
from tests.clients.rocketmq.other_protocols import fill_inbox

pytestmark = pytest.mark.xdist_group("spark")

PROGRAM = Path(__file__).parents[1] / "clients" / "rocketmq" / "grpc" / "python_steps.py"


@pytest.fixture
def rocket(tmp_path: Path) -> Iterator[ThreadBroker]:
    with grpc_broker(tmp_path, has_tls=False) as running:
        yield running


def test_both_ways(spark: SparkSession, rocket: ThreadBroker, tmp_path: Path) -> None:
    command = [sys.executable, str(PROGRAM), rocket.address("rocketmq_grpc"), "plain"]
    run = partial(run_program, command, home=tmp_path / "home")
    check_done(run("exchange"), ["exchange"])
    options = {"kafka.bootstrap.servers": rocket.kafka, "includeHeaders": "true"}
    found = spark.read.format("posthouse").options(**options, subscribe="exchange").load()
    rows = sorted(found.collect(), key=lambda row: bytes(row.value))
    assert [bytes(row.value) for row in rows] == [b"message %d" % number for number in range(10)]
    for number, row in enumerate(rows):
        headers = {name: bytes(value) for name, value in row.headers}
        assert (bytes(row.key), headers["KEYS"]) == (b"key%d" % number, b"key%d" % number)
        assert (headers["TAGS"], headers["tenant"]) == (
            b"odd" if number % 2 else b"even",
            "blåu".encode(),
        )

    # The messages that the step `inbox` expects, from another topic, copied by Spark.
    fill_inbox(rocket, "drafts")
    drafts = spark.read.format("posthouse").options(**options, subscribe="drafts").load()
    written = drafts.select("key", "value", "headers")
    written.write.format("posthouse").options(**options, topic="inbox").mode("append").save()
    check_done(run("inbox"), ["inbox"])
