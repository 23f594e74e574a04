"""The same rows and schema as Spark's own Kafka connector, against the same broker."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from posthouse.client import Client
from posthouse.testing import ThreadBroker
from tests.surroundings import HOME

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark-cluster")]

PROGRAM = Path(__file__).with_name("connector_program.py")
# The newest that has all its parts on Maven Central; it runs on later Sparks too.
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"


@pytest.mark.timeout(400)
def test_the_same_as_sparks_own(broker: ThreadBroker, client: Client) -> None:
    client.create_topic("t", partitions=2, settings={"retention.ms": "-1"})
    with client.producer("t") as producer:
        for number in range(20):
            key = None if number % 3 else b"%d" % number
            headers = [("h", b"%d" % number), ("n", None)] if number % 4 else []
            value = None if number == 7 else b"%d" % number
            producer.send(value, key, headers, timestamp=1_000_000 + number * 500, partition=number % 2)
    run = subprocess.run(
        [sys.executable, str(PROGRAM), broker.kafka, CONNECTOR],
        capture_output=True,
        text=True,
        timeout=390,
    )
    if run.returncode and "unresolved dependency" in run.stderr:
        pytest.skip(f"{CONNECTOR} cannot be had")
    assert run.returncode == 0, run.stderr[-5000:]
    found = json.loads(run.stdout.splitlines()[-1])
    assert len(found) == 8
    assert not any(found.values()), found
    assert list((HOME / ".ivy2.5.2" / "jars").glob("*kafka*.jar")), "a cache of our own"
