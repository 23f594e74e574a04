"""Archives made by Spark from a real broker: equal to the log, whatever happens in between."""

import shutil
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from posthouse.client import Client
from posthouse.model.ids import ARCHIVE_GROUP
from posthouse.spark.archive import ArchivePlan, Archiver, read_archive
from posthouse.spark.archive.errors import ArchiveConflict, ArchiveError
from posthouse.spark.archive.job import Limits
from posthouse.spark.archive.manifest import Log, Manifest
from posthouse.spark.archive.status import live_ends, status_of
from posthouse.testing import ThreadBroker, running_broker
from tests.spark.archive.records import DAY_MS, NOON

pytestmark = pytest.mark.xdist_group("spark")

Row = tuple[int, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Partition, offset, timestamp, key, value, headers."""


def log_of(client: Client, topic: str) -> list[Row]:
    """What is committed in the log, read by the plain client."""
    return sorted(
        (
            message.partition,
            message.offset,
            message.timestamp,
            message.key,
            message.value,
            tuple((_text(key), value) for key, value in message.headers),
        )
        for message in client.messages(topic)
    )


def _text(key: str | bytes) -> str:
    return key if isinstance(key, str) else key.decode()


def _headers(row: Any) -> tuple[tuple[str, bytes | None], ...]:
    found = row.asDict().get("headers") or ()
    return tuple((each.key, None if each.value is None else bytes(each.value)) for each in found)


def rows_of(frame: DataFrame) -> list[Row]:
    return sorted(
        (
            row.partition,
            row.offset,
            round(row.timestamp.replace(tzinfo=UTC).timestamp() * 1000),
            None if row.key is None else bytes(row.key),
            None if row.value is None else bytes(row.value),
            _headers(row),
        )
        for row in frame.collect()
    )


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark makes local times."""
    import time

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


def fill(writer: Producer, topic: str, count: int, *, days: int = 1, partitions: int = 2) -> None:
    for number in range(count):
        writer.produce(
            topic,
            key=None if number % 5 == 0 else b"key %d" % number,
            value=None if number % 7 == 0 else bytes([number % 256]) * (number % 50),
            partition=number % partitions,
            timestamp=NOON + number % days * DAY_MS + number,
            headers=[("a", b"\x00\xff"), ("a", None), ("é", b"")] if number % 3 == 0 else None,
        )
    writer.flush()


def transactions(broker: ThreadBroker, topic: str) -> None:
    """One that is committed, one that is given up, one that is committed again."""
    producer = Producer(
        {"bootstrap.servers": broker.kafka, "log_level": 0, "transactional.id": "archive-test"}
    )
    producer.init_transactions()
    for number, commit in enumerate((True, False, True)):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(topic, b"transaction %d" % number, partition=partition, timestamp=NOON)
        producer.flush()
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()


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


def test_a_killed_run_goes_on(
    spark: SparkSession,
    broker: ThreadBroker,
    client: Client,
    writer: Producer,
    archiver: Archiver,
    place: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It dies when the files are written, and then when the manifest is."""
    client.create_topic("orders", partitions=2)
    fill(writer, "orders", 300)

    def die(*arguments: object, **more: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(archiver.manifest, "commit", die)
        with pytest.raises(KeyboardInterrupt):
            archiver.run(["orders"])
    leftovers = {each.path for each in archiver.manifest.root.stored()}
    assert leftovers
    assert client.group_names() == []
    second = Archiver(spark, broker.kafka, place)
    with monkeypatch.context() as patch:
        patch.setattr(Client, "commit_topic", die)
        with pytest.raises(KeyboardInterrupt):
            second.run(["orders"])
    third = Archiver(spark, broker.kafka, place)
    assert third.run(["orders"]).records == 0, "the second had everything in its manifest"
    assert [each.committed for each in client.group_offsets(client.group(ARCHIVE_GROUP))] == [150, 150]
    assert rows_of(read_archive(spark, place, ["orders"], include_headers=True)) == log_of(client, "orders")
    assert not leftovers & third.manifest.state.files.keys()


def test_of_two_archivers_one_fails_with_a_sentence(
    spark: SparkSession,
    broker: ThreadBroker,
    client: Client,
    writer: Producer,
    archiver: Archiver,
    place: str,
) -> None:
    client.create_topic("orders", partitions=2)
    fill(writer, "orders", 50)
    other = Archiver(spark, broker.kafka, place)
    commit = archiver.manifest.commit

    def late(*arguments: Any, **more: Any) -> None:
        other.run(["orders"])
        commit(*arguments, **more)

    archiver.manifest.commit = late  # type: ignore[method-assign]
    with pytest.raises(ArchiveConflict, match="let only one run at a time"):
        archiver.run(["orders"])
    assert rows_of(read_archive(spark, place, ["orders"], include_headers=True)) == log_of(client, "orders")


def test_a_topic_that_was_created_again_is_another_one(
    spark: SparkSession,
    broker: ThreadBroker,
    client: Client,
    writer: Producer,
    archiver: Archiver,
    place: str,
) -> None:
    client.create_topic("orders", partitions=2)
    fill(writer, "orders", 100)
    old = client.topic("orders").id.hex()
    archiver.run(["orders"])
    client.delete_topic("orders")
    client.create_topic("orders", partitions=2)
    with client.producer("orders") as producer:
        producer.send(b"new", partition=0, timestamp=NOON)
    assert rows_of(read_archive(spark, place, ["orders"], bootstrap=broker.kafka)) == log_of(client, "orders")
    archiver.run(["orders"])
    assert [row[4] for row in rows_of(read_archive(spark, place, ["orders"]))] == [b"new"]
    plan = ArchivePlan.open(place)
    assert plan.topic_id("orders") == client.topic("orders").id.hex()
    assert [plan.archived_end(old, partition) for partition in (0, 1)] == [50, 50]
    status = status_of(plan.state, live_ends(client))
    assert status.gone == {old}
    assert [each.lag for each in status.partitions if each.topic_id != old] == [0, 0]


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
    fill(writer, "orders", 2000)
    stop = threading.Event()
    report = archiver.run(
        ["orders"], stop=stop, progress=lambda report: stop.set() if report.offsets else None
    )
    assert 0 < report.offsets < 2000
    assert archiver.run(["orders"]).waiting == 2000 - report.offsets


def test_an_open_transaction_holds_the_archive_back(
    broker: ThreadBroker, client: Client, writer: Producer, archiver: Archiver
) -> None:
    client.create_topic("orders", partitions=1)
    fill(writer, "orders", 10, partitions=1)
    producer = Producer({"bootstrap.servers": broker.kafka, "log_level": 0, "transactional.id": "open"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("orders", b"undecided", partition=0)
    producer.flush()
    fill(writer, "orders", 10, partitions=1)
    assert archiver.run(["orders"]).records == 10
    producer.commit_transaction()
    assert archiver.run(["orders"]).records == 11


def test_lost_records_are_said(client: Client, writer: Producer, archiver: Archiver) -> None:
    client.create_topic("orders", partitions=1, settings={"segment.bytes": "200"})
    fill(writer, "orders", 10, partitions=1)
    archiver.run(["orders"])
    for _ in range(10):
        fill(writer, "orders", 10, partitions=1)
    trim(client, "orders", 60)
    report = archiver.run(["orders"])
    assert [tuple(loss.lost) for loss in report.losses] == [(10, 60)]
    assert archiver.manifest.state.covered[Log(client.topic("orders").id.hex(), 0)] == [(0, 10), (60, 110)]


def trim(client: Client, topic: str, offset: int) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": client._cluster.any().node.__str__()})
    for done in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        done.result()


def test_a_read_spans_archive_and_log_while_the_broker_lets_go(spark: SparkSession, place: str) -> None:
    """`retention.local` trims all the time; the source with the archive still has every record once."""
    with (
        running_broker(retention_check_seconds=0.05) as broker,
        Client(broker.kafka) as client,
    ):
        settings = {"retention.ms": "-1", "retention.local.bytes": "0", "segment.bytes": "500"}
        client.create_topic("orders", partitions=2, settings=settings)
        writer = Producer({"bootstrap.servers": broker.kafka, "log_level": 0})
        archiver = Archiver(spark, broker.kafka, place)
        info = client.topic("orders")
        expected = 0
        for _ in range(3):
            fill(writer, "orders", 300)
            expected += 300
            archiver.run(["orders"])
            fill(writer, "orders", 50)
            expected += 50
            source = (
                spark.read.format("posthouse")
                .option("kafka.bootstrap.servers", broker.kafka)
                .option("subscribe", "orders")
                .option("archive", place)
                .load()
            )
            native = read_archive(spark, place, ["orders"], bootstrap=broker.kafka)
            for frame in (source, native):
                found = sorted(
                    (row.partition, row.offset) for row in frame.select("partition", "offset").collect()
                )
                assert found == [(index, offset) for index in (0, 1) for offset in range(expected // 2)]
        bounds = client.bounds([info])
        assert all(bounds["orders", index].start >= 450 for index in (0, 1)), "it has let go meanwhile"
        assert all(bounds["orders", index].start < 525 for index in (0, 1)), "but not of what is not archived"
