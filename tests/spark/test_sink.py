"""The sink on real Spark, read back with confluent-kafka as a consumer of committed records."""

import datetime
import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from posthouse.client import Client
from posthouse.client.cluster import Cluster
from posthouse.client.together import fence_sequence
from posthouse.records.batch import BatchHeader, iter_headers
from posthouse.records.compression import Codec
from posthouse.records.partitioner import partition_of
from posthouse.spark.options import LATEST
from posthouse.testing import ThreadBroker

pytestmark = pytest.mark.xdist_group("spark")

TIME = datetime.datetime(2024, 11, 16, 12, 30, 15, 250_000, datetime.UTC)


def consume(broker: ThreadBroker, *topics: str) -> list[confluent_kafka.Message]:
    """All that a read_committed consumer gets to see, up to where records are held back."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.kafka,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    places = [
        confluent_kafka.TopicPartition(topic, index, 0)
        for topic in topics
        for index in consumer.list_topics(topic).topics[topic].partitions
    ]
    consumer.assign(places)
    found: list[confluent_kafka.Message] = []
    ended = 0
    while ended < len(places):
        message = consumer.poll(10)
        assert message is not None, "no end came"
        error = message.error()
        if error is None:
            found.append(message)
        else:
            assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF
            ended += 1
    consumer.close()
    return found


def numbers(broker: ThreadBroker, topic: str) -> list[int]:
    return sorted(int(message.value() or b"") for message in consume(broker, topic))


def batches(client: Client, topic: str) -> list[BatchHeader]:
    """Those with records, as the log has them."""
    info = client.topic(topic)
    ends = client.find_offsets([(info, range(info.partitions))], LATEST)
    return [
        header
        for (_, index), end in ends.items()
        for fetched in client.range_of(info, index, 0, end)
        for _, header in iter_headers(fetched.data)
        if not header.is_control
    ]


def save(frame: DataFrame, broker: ThreadBroker, **options: str) -> None:
    writer = frame.write.format("posthouse").option("kafka.bootstrap.servers", broker.kafka)
    writer.options(**options).mode("append").save()


def count_up(spark: SparkSession, rows: int, partitions: int = 2) -> DataFrame:
    return spark.range(0, rows, 1, partitions).select(F.col("id").cast("string").alias("value"))


def still_open(broker: ThreadBroker) -> int:
    return len(broker.broker.app.broker.transactions.ids.open())


def test_every_column(spark: SparkSession, broker: ThreadBroker, client: Client) -> None:
    client.create_topic("a", partitions=3)
    client.create_topic("b", partitions=1)
    rows: list[Any] = [
        ("a", 2, b"k", b"v", TIME, [("h", b"1"), ("h", None)]),
        ("a", None, b"k", b"by key", TIME, []),
        ("a", 0, None, None, None, None),
        ("b", None, None, b"no key", TIME, None),
    ]
    columns = (
        "topic string, partition int, key binary, value binary, timestamp timestamp, "
        "headers array<struct<key: string, value: binary>>"
    )
    save(spark.createDataFrame(rows, columns).coalesce(1), broker)
    millis = int(TIME.timestamp() * 1000)
    found = {
        (message.topic(), message.partition()): message
        for message in consume(broker, "a", "b")
        if message.value() != b"by key"
    }
    first = found["a", 2]
    assert (first.key(), first.value(), first.timestamp()[1]) == (b"k", b"v", millis)
    assert first.headers() == [("h", b"1"), ("h", None)]
    nothing = found["a", 0]
    assert (nothing.key(), nothing.value(), nothing.headers()) == (None, None, None)
    assert abs(nothing.timestamp()[1] / 1000 - datetime.datetime.now().timestamp()) < 600, "the present time"
    assert found["b", 0].value() == b"no key"
    [keyed] = [message for message in consume(broker, "a") if message.value() == b"by key"]
    assert keyed.partition() == partition_of(b"k", 3)


def test_partitions_and_codecs(spark: SparkSession, broker: ThreadBroker, client: Client) -> None:
    client.create_topic("keyed", partitions=5)
    client.create_topic("spread", partitions=2)
    keyed = count_up(spark, 500).withColumn("key", F.col("value"))
    save(keyed, broker, topic="keyed", **{"kafka.compression.type": "zstd"})
    found = consume(broker, "keyed")
    assert sorted(int(message.value() or b"") for message in found) == list(range(500))
    assert all(message.partition() == partition_of(message.key() or b"", 5) for message in found)
    assert {(each.codec, each.is_transactional) for each in batches(client, "keyed")} == {(Codec.ZSTD, True)}
    save(count_up(spark, 100), broker, topic="spread", delivery="at-least-once")
    spread = consume(broker, "spread")
    assert {message.partition() for message in spread} == {0, 1}, "each task has begun with another"
    assert numbers(broker, "spread") == list(range(100))
    assert {(each.codec, each.is_transactional) for each in batches(client, "spread")} == {
        (Codec.NONE, False)
    }


def test_a_row_without_a_topic(spark: SparkSession, broker: ThreadBroker) -> None:
    frame = spark.createDataFrame([("v", None)], "value string, topic string")
    with pytest.raises(Exception, match="a row's topic is null"):
        save(frame, broker)
    assert still_open(broker) == 0


@pytest.mark.parametrize(
    ("options", "complaint"),
    [({"topik": "t"}, "did you mean 'topic'"), ({}, "the rows have no topic")],
)
def test_planning_says_what_is_wrong(
    spark: SparkSession, broker: ThreadBroker, options: dict[str, str], complaint: str
) -> None:
    with pytest.raises(Exception, match=complaint):
        save(count_up(spark, 1), broker, **options)


def test_a_topic_cannot_be_overwritten(spark: SparkSession, broker: ThreadBroker) -> None:
    writer = count_up(spark, 1).write.format("posthouse").option("kafka.bootstrap.servers", broker.kafka)
    with pytest.raises(Exception, match="cannot be overwritten"):
        writer.option("topic", "t").mode("overwrite").save()


def failing(frame: DataFrame, mark: Path, *, times: int, killed: bool = False) -> DataFrame:
    """The task that has the row 250 fails behind it, so many times."""

    def fail(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            if "250" in batch.column("value").to_pylist():
                before = len(list(mark.iterdir()))
                if before < times:
                    (mark / str(before)).touch()
                    if killed:
                        os.kill(os.getpid(), signal.SIGKILL)
                    raise RuntimeError("failed on purpose")

    return frame.mapInArrow(fail, "value string")


@pytest.mark.parametrize("killed", [False, True], ids=["raises", "is killed"])
def test_a_task_that_is_tried_again(
    spark: SparkSession, broker: ThreadBroker, client: Client, tmp_path: Path, killed: bool
) -> None:
    client.create_topic("t", partitions=2)
    # Small Arrow batches: the first ones have been written when the failure comes.
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50")
    try:
        save(failing(count_up(spark, 600), tmp_path, times=1, killed=killed), broker, topic="t")
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert len(list(tmp_path.iterdir())) == 1
    assert numbers(broker, "t") == list(range(600))
    assert still_open(broker) == 0


def test_a_job_that_fails_leaves_nothing_visible(
    spark: SparkSession, broker: ThreadBroker, client: Client, tmp_path: Path
) -> None:
    client.create_topic("t", partitions=2)
    # One task: another could begin after the job was given up, and would then be left to its timeout.
    with pytest.raises(Exception, match="failed on purpose"):
        save(failing(count_up(spark, 600, partitions=1), tmp_path, times=99), broker, topic="t")
    assert still_open(broker) == 0
    assert numbers(broker, "t") == []
    save(count_up(spark, 10), broker, topic="t")
    assert numbers(broker, "t") == list(range(10))


def test_a_numbered_batch_is_written_once(spark: SparkSession, broker: ThreadBroker) -> None:
    """What foreachBatch needs."""
    for batch_id in ("0", "0", "1"):
        save(count_up(spark, 20), broker, topic="t", appId="app", batchId=batch_id)
    assert numbers(broker, "t") == sorted([*range(20)] * 2)


class Query:
    """A streaming query over a directory of text files, one file an epoch."""

    def __init__(self, spark: SparkSession, broker: ThreadBroker, directory: Path) -> None:
        self._spark = spark
        self._broker = broker
        self.input = directory / "input"
        self.checkpoint = directory / "checkpoint"
        self.input.mkdir()
        self._files = 0

    def add(self, *lines: int) -> None:
        (self.input / f"{self._files}.txt").write_text("".join(f"{line}\n" for line in lines))
        self._files += 1

    def run(self, **options: str) -> str:
        """Until there is no more input. Returns the query's id."""
        query = (
            self._spark.readStream.option("maxFilesPerTrigger", 1)
            .text(str(self.input))
            .writeStream.format("posthouse")
            .option("kafka.bootstrap.servers", self._broker.kafka)
            .option("topic", "t")
            .option("checkpointLocation", str(self.checkpoint))
            .options(**options)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(100)
        return str(query.id)

    def forget_last_commit(self) -> None:
        """As if the driver had died between the sink's commit and its own note of it."""
        notes = [path for path in (self.checkpoint / "commits").iterdir() if path.name.isdecimal()]
        last = max(notes, key=lambda path: int(path.name))
        last.unlink()
        (last.parent / f".{last.name}.crc").unlink(missing_ok=True)


def test_a_stream_and_an_epoch_that_is_tried_again(
    spark: SparkSession, broker: ThreadBroker, tmp_path: Path
) -> None:
    query = Query(spark, broker, tmp_path)
    query.add(0, 1, 2)
    query.add(3, 4)
    id = query.run()
    assert numbers(broker, "t") == [0, 1, 2, 3, 4]
    cluster = Cluster(broker.kafka, timeout=10)
    assert fence_sequence(cluster, id) == 1
    query.forget_last_commit()
    query.add(5)
    assert query.run() == id
    assert numbers(broker, "t") == [0, 1, 2, 3, 4, 5]
    assert fence_sequence(cluster, id) == 2
    assert still_open(broker) == 0
    cluster.close()


def test_a_checkpoint_that_is_gone_is_noticed(
    spark: SparkSession, broker: ThreadBroker, tmp_path: Path
) -> None:
    """Otherwise its first epochs would be taken for repetitions, and their rows lost."""
    query = Query(spark, broker, tmp_path)
    query.add(0)
    query.add(1)
    query.run(appId="app")
    query.checkpoint = tmp_path / "another"
    with pytest.raises(Exception, match="choose another 'appId'"):
        query.run(appId="app")
    assert numbers(broker, "t") == [0, 1]
