"""The archive commands, on a real broker and a real Spark."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from pyspark.sql import SparkSession

from posthouse.cli.archive import _stopping
from posthouse.client import Client
from posthouse.spark.archive import ArchivePlan, Archiver, read_archive
from posthouse.testing import ThreadBroker, running_broker
from tests.cli.programs import PROGRAM, environment, inside, one_sentence

# The command makes a session of its own, or takes the one that there is; Spark Connect has another kind.
pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.usefixtures("classic")]

WHEN = 1_700_000_000_000


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "archive")


def produce(client: Client, topic: str, count: int) -> None:
    with client.producer(topic) as producer:
        for number in range(count):
            producer.send(b"value %d" % number, partition=number % 2, timestamp=WHEN + number)


def printed(*arguments: str, bootstrap: str = "") -> Any:
    done = inside("archive", *arguments, "--json", bootstrap=bootstrap)
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def test_run_status_and_compact(
    spark: SparkSession, broker: ThreadBroker, client: Client, place: str
) -> None:
    for topic in ("orders", "others"):
        client.create_topic(topic, partitions=2)
    produce(client, "orders", 100)
    assert printed("run", "orders", "--to", place, bootstrap=broker.kafka)["records"] == 100
    produce(client, "orders", 30)
    found = printed("status", "--from", place, bootstrap=broker.kafka)
    assert found["not_archived"] == ["others"]
    first = found["partitions"][0]
    assert (first["topic"], first["partition"], first["archived"]) == ("orders", 0, [[0, 50]])
    assert (first["records"], first["files"], first["end"], first["lag"]) == (50, 1, 65, 15)
    again = printed("run", "orders", "--to", place, "--no-compact", bootstrap=broker.kafka)
    assert (again["records"], again["merged"]) == (30, 0)
    assert printed("status", "--from", place)["partitions"][0]["lag"] is None, "no broker was asked"
    table = inside("archive", "status", "--from", place, bootstrap=broker.kafka)
    lines = [line.split() for line in table.stdout.splitlines()]
    assert lines[0] == ["topic", "partition", "archived", "records", "bytes", "files", "lag"]
    assert lines[1][:4] == ["orders", "0", "0–64", "65"]
    assert lines[1][-1] == "0"
    assert "130 records in 2 files" in table.stderr
    assert "not archived at all: others" in table.stderr
    assert printed("compact", "--to", place) == {"merged": 2}
    assert printed("status", "--from", place)["files"] == 1
    said = inside("archive", "compact", "--to", place)
    assert (said.returncode, said.stderr) == (0, "there is nothing to merge\n")


def test_what_goes_wrong_is_one_sentence(
    spark: SparkSession, broker: ThreadBroker, client: Client, place: str
) -> None:
    nothing = f"there is no archive in {place}; make one with 'posthouse archive run TOPIC --to {place}'"
    for command in ("status", "compact"):
        assert one_sentence(inside("archive", command, "--from", place), 1) == nothing
    unknown = inside("archive", "run", "nope", "--to", place, bootstrap=broker.kafka)
    assert one_sentence(unknown, 1).startswith("there is no topic 'nope'")
    assert "is no place for an archive" in one_sentence(
        inside("archive", "run", "x", "--to", "nowhere://x"), 1
    )
    assert one_sentence(inside("archive", "run", "orders"), 2).startswith("missing option '--to'")


@contextmanager
def running(kafka: str, place: str, *more: str) -> Iterator[subprocess.Popen[str]]:
    """`archive run` as a process of its own, with a Java of its own."""
    arguments = [
        "archive",
        "run",
        "orders",
        "--to",
        place,
        "--bootstrap",
        kafka,
        "--master",
        "local[1]",
        *more,
    ]
    process = subprocess.Popen([*PROGRAM, *arguments], stderr=subprocess.PIPE, text=True, env=environment())
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_run_that_is_killed_while_it_writes(spark: SparkSession, place: str) -> None:
    """By kill -9, with a broker that lets go of all it may: nothing is lost, and the next run has all."""
    settings = {"retention.ms": "-1", "retention.local.bytes": "0", "internal.segment.bytes": "10000"}
    with running_broker(retention_check_seconds=0.05) as broker, Client(broker.kafka) as client:
        client.create_topic("orders", partitions=2, settings=settings)
        produce(client, "orders", 20_000)
        directory = Path(place)
        with running(broker.kafka, place) as process:
            deadline = time.monotonic() + 90
            while not any(directory.rglob("*.parquet*")):
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.001)  # there is no event for a file that another process begins
            process.kill()
            process.wait()
        if not any(directory.rglob("*.json")):
            assert client.bounds([client.topic("orders")])["orders", 0].start == 0
        before = sorted((each.partition, each.offset, each.value) for each in client.messages("orders"))
        assert Archiver(spark, broker.kafka, place).run(["orders"]).records in (0, 20_000)
        rows = read_archive(spark, place, ["orders"]).select("partition", "offset", "value").collect()
        found = sorted((row.partition, row.offset, bytes(row.value)) for row in rows)
        assert len(found) == 20_000
        assert set(before) <= set(found)
        assert [row[:2] for row in found] == [(index, at) for index in (0, 1) for at in range(10_000)]


def test_continuous_runs_end_cleanly(broker: ThreadBroker, client: Client, place: str) -> None:
    client.create_topic("orders", partitions=2)
    produce(client, "orders", 100)
    with running(broker.kafka, place, "--continuous", "--every", "0.2") as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        next(line for line in lines if line.startswith("archived 100 records in 1 file"))
        produce(client, "orders", 50)
        next(line for line in lines if line.startswith("archived 50 records in 1 file"))
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 0, said
    assert "stopping after this step" in said
    plan = ArchivePlan.open(place)
    assert plan.archived_end(client.topic("orders").id, 0) == 75


def test_a_signal_may_come_at_any_line_of_waiting(capfd: pytest.CaptureFixture[str]) -> None:
    """With a lock that the waiting thread holds itself, this would hang."""
    for line in count():
        with _stopping() as stop:
            was_sent = signalled(lambda: stop.wait(0.01), line)
            assert stop.is_wanted == was_sent
        if not was_sent:
            break
    assert line > 0
    assert capfd.readouterr().err.count("stopping after this step") == line


def signalled(call: Callable[[], None], line: int) -> bool:
    """Whether SIGTERM interrupted the call at this line, counted from 0. The call may have fewer."""
    left = line

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if event == "line":
            left -= 1
            if left < 0:
                sys.settrace(None)
                signal.raise_signal(signal.SIGTERM)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return left < 0
