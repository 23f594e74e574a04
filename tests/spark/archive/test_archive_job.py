"""Archives made by Spark from a real broker: equal to the log."""

import shutil
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from posthouse.client import Client
from posthouse.model.ids import ARCHIVE_GROUP
from posthouse.spark.archive import ArchivePlan, Archiver, read_archive
from posthouse.spark.archive.errors import ArchiveError
from posthouse.spark.archive.manifest import Manifest
from posthouse.testing import ThreadBroker
from tests.spark.archive.records import NOON
from tests.spark.archive.rows import fill, log_of, rows_of, transactions

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.usefixtures("in_utc")]


def test_the_archive_equals_the_log(
    spark: SparkSession,
    broker: ThreadBroker,
    client: Client,
    writer: Producer,
    archiver: Archiver,
    place: str,
) -> None:
    client.create_topic("orders", partitions=2)
    fill(writer, "orders", 500, days=3)
    transactions(broker, "orders")
    fill(writer, "orders", 100)
    expected = log_of(client, "orders")
    assert len(expected) == 604
    report = archiver.run(["orders"])
    assert (report.records, report.waiting, report.offsets) == (604, 612, 612)
    assert rows_of(read_archive(spark, place, ["orders"], include_headers=True)) == expected
    state = Manifest.open(archiver.manifest.root).state
    assert {log.partition: ranges for log, ranges in state.covered.items()} == {0: [(0, 306)], 1: [(0, 306)]}
    assert state.version > 1, "several steps, because a piece has 200 offsets at most"
    for path, file in state.files.items():
        assert path.startswith(f"topic=orders/day={file.day}/")
    assert {file.day for file in state.files.values()} == {
        (datetime.fromtimestamp(NOON / 1000, UTC) + timedelta(days=day)).date().isoformat()
        for day in range(3)
    }
    again = archiver.run(["orders"])
    assert (again.records, again.waiting) == (0, 0)
    assert Manifest.open(archiver.manifest.root).state.version == state.version
    [offset, _] = client.group_offsets(client.group(ARCHIVE_GROUP))
    assert (offset.committed, offset.lag) == (306, 0)


def test_producers_are_kept(
    spark: SparkSession, client: Client, writer: Producer, archiver: Archiver
) -> None:
    client.create_topic("orders", partitions=1)
    fill(writer, "orders", 10, partitions=1)
    with client.producer("orders") as plain:
        plain.send(b"by nobody", partition=0)
    archiver.run(["orders"])
    paths = [archiver.manifest.root.location(path) for path in archiver.manifest.state.files]
    rows = sorted(spark.read.parquet(*paths).collect(), key=lambda row: row.offset)
    assert [row.sequence for row in rows] == [*range(10), -1]
    [id] = {row.producerId for row in rows[:10]}
    assert id >= 0
    assert {row.producerEpoch for row in rows[:10]} == {0}
    assert (rows[10].producerId, rows[10].producerEpoch) == (-1, -1)


def test_merging_changes_files_and_no_records(
    spark: SparkSession, client: Client, writer: Producer, archiver: Archiver, place: str
) -> None:
    client.create_topic("orders", partitions=2)
    for _ in range(3):
        fill(writer, "orders", 60, days=3)
        archiver.run(["orders"])
    expected = log_of(client, "orders")
    before = set(archiver.manifest.state.files)
    old_plan = ArchivePlan.open(place)
    assert archiver.compact(["others"]) == 0
    assert archiver.compact() == len(before)
    state = Manifest.open(archiver.manifest.root).state
    assert len(state.files) == 3
    assert all(len(file.parts) == 2 for file in state.files.values())
    assert state.retired.keys() == before
    assert rows_of(read_archive(spark, place, ["orders"], include_headers=True)) == expected
    sizes = {path: file.bytes for path, file in old_plan.state.files.items()}
    assert old_plan.root.sizes(list(sizes)) == list(sizes.values()), "readers that began before go on"
    assert archiver.compact() == 0


def test_only_files_of_that_time_are_touched(
    spark: SparkSession, client: Client, writer: Producer, archiver: Archiver, place: str
) -> None:
    client.create_topic("orders", partitions=2)
    fill(writer, "orders", 200, days=4)
    archiver.run(["orders"])
    expected = log_of(client, "orders")
    day = datetime.fromtimestamp(NOON / 1000, UTC).replace(hour=0, minute=0, second=0) + timedelta(days=2)
    wanted = [
        row for row in expected if day <= datetime.fromtimestamp(row[2] / 1000, UTC) < day + timedelta(days=1)
    ]
    assert 0 < len(wanted) < len(expected)
    for path in archiver.manifest.state.files:
        if f"day={day.date()}" not in path:
            shutil.copyfile(__file__, Path(place) / path)
    frame = read_archive(
        spark, place, ["orders"], since=day, until=day + timedelta(days=1), include_headers=True
    )
    assert rows_of(frame) == wanted
    assert len(frame.inputFiles()) == 1


def test_offsets_and_the_live_tail(
    spark: SparkSession,
    broker: ThreadBroker,
    client: Client,
    writer: Producer,
    archiver: Archiver,
    place: str,
) -> None:
    client.create_topic("orders", partitions=2)
    client.create_topic("others", partitions=1)
    fill(writer, "orders", 100)
    archiver.run(["orders"])
    fill(writer, "orders", 40)
    fill(writer, "others", 5, partitions=1)
    everything = log_of(client, "orders")
    both = read_archive(spark, place, ["orders", "others"], bootstrap=broker.kafka, include_headers=True)
    assert rows_of(both) == sorted([*everything, *log_of(client, "others")])
    assert both.schema.names[:4] == ["key", "value", "topic", "partition"]
    part = read_archive(
        spark,
        place,
        ["orders"],
        first={"orders": {0: 40}},
        end={"orders": {0: 60, 1: 10}},
        bootstrap=broker.kafka,
        include_headers=True,
    )
    assert rows_of(part) == [row for row in everything if (40 <= row[1] < 60 if row[0] == 0 else row[1] < 10)]
    with pytest.raises(ArchiveError, match="'others' is not in the archive"):
        read_archive(spark, place, ["others"])


def test_a_run_stops_after_its_step(client: Client, writer: Producer, archiver: Archiver) -> None:
    client.create_topic("orders", partitions=2)
    fill(writer, "orders", 4000)  # more than a step of the 16 tasks that Spark Connect is given
    stop = threading.Event()
    report = archiver.run(
        ["orders"], stop=stop.is_set, progress=lambda report: stop.set() if report.offsets else None
    )
    assert 0 < report.offsets < 4000
    assert archiver.run(["orders"]).waiting == 4000 - report.offsets
