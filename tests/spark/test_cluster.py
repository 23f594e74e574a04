"""Executors in processes of their own: nothing of the source or sink may need the driver's memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from posthouse.client import Client
from posthouse.testing import ThreadBroker

pytestmark = pytest.mark.xdist_group("spark-cluster")

PROGRAM = Path(__file__).with_name("cluster_program.py")


@pytest.mark.skipif(
    "POSTHOUSE_KILLS" not in os.environ,
    reason="exactly_once runs source and sink on two executors, too: make torture-spark",
)
@pytest.mark.timeout(180)
def test_two_executors(broker: ThreadBroker, client: Client, tmp_path: Path) -> None:
    client.create_topic("in", partitions=2)
    client.create_topic("out", partitions=2)
    with client.producer("in") as producer:
        for number in range(1000):
            producer.send(b"%d" % number, b"%d" % number)
    run = subprocess.run(
        [sys.executable, str(PROGRAM), "local-cluster[2,1,1024]", broker.kafka, str(tmp_path / "checkpoint")],
        capture_output=True,
        text=True,
        env=os.environ | {"SPARK_WORKER_DIR": str(tmp_path / "work")},
        cwd=tmp_path,
        timeout=170,
    )
    assert run.returncode == 0, run.stderr[-5000:]
    found = json.loads(run.stdout.splitlines()[-1])
    assert found["rows"] == 1000
    assert len(found["executors"]) >= 2
    assert sorted(int(each.value or b"") for each in client.messages("out")) == list(range(1000))
