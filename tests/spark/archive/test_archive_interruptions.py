"""Archives made by Spark are equal to the log also when runs are killed, and logs change in between."""

from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from posthouse.client import Client
from posthouse.model.ids import ARCHIVE_GROUP
from posthouse.spark.archive import ArchivePlan, Archiver, read_archive
from posthouse.spark.archive.errors import ArchiveConflict
from posthouse.spark.archive.manifest import Log
from posthouse.spark.archive.status import live_ends, status_of
from posthouse.testing import ThreadBroker, running_broker
from tests.spark.archive.records import NOON
from tests.spark.archive.rows import fill, log_of, rows_of

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.usefixtures("in_utc")]


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
    client.create_topic("orders", partitions=1, settings={"internal.segment.bytes": "200"})
    fill(writer, "orders", 10, partitions=1)
    archiver.run(["orders"])
    for _ in range(10):
        fill(writer, "orders", 10, partitions=1)
    trim(client, "orders", 60)
    report = archiver.run(["orders"])
    assert [tuple(loss.lost) for loss in report.losses] == [(10, 60)]
    assert archiver.manifest.state.covered[Log(client.topic("orders").id.hex(), 0)] == [(0, 10), (60, 110)]


def trim(client: Client, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": client._cluster.any().node.__str__()})
    for done in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        done.result()


def test_a_read_spans_archive_and_log_while_the_broker_lets_go(spark: SparkSession, place: str) -> None:
    """`retention.local` trims all the time; the source with the archive still has every record once."""
    with (
        running_broker(retention_check_seconds=0.05) as broker,
        Client(broker.kafka) as client,
    ):
        settings = {"retention.ms": "-1", "retention.local.bytes": "0", "internal.segment.bytes": "500"}
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
