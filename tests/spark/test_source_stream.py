"""`spark.readStream.format("posthouse")`: offsets, limits, new partitions, and what happens to lost ones."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from posthouse.client import Client
from posthouse.testing import ThreadBroker

pytestmark = pytest.mark.xdist_group("spark")


class Query:
    """A query that is started again and again on one checkpoint, each time until it has read all there is."""

    def __init__(self, spark: SparkSession, broker: ThreadBroker, place: Path) -> None:
        self._spark = spark
        self._broker = broker
        self._place = place

    def start(self, *, until_stopped: bool = False, **options: str) -> StreamingQuery:
        frame = (
            self._spark.readStream.format("posthouse")
            .option("kafka.bootstrap.servers", self._broker.kafka)
            .options(**options)
            .load()
            .selectExpr("topic", "partition", "offset", "CAST(value AS STRING) AS value")
        )
        writer = frame.writeStream.format("parquet").option("path", str(self._place / "out"))
        writer = writer.option("checkpointLocation", str(self._place / "checkpoint"))
        return (writer if until_stopped else writer.trigger(availableNow=True)).start()

    def run(self, **options: str) -> list[dict[str, Any]]:
        """The progress of its batches."""
        query = self.start(until_stopped=False, **options)
        assert query.awaitTermination(100)
        # Spark Connect leaves the number out of the JSON.
        return [
            {**json.loads(each.json), "numInputRows": each.numInputRows}
            for each in query.recentProgress
            if each.numInputRows
        ]

    def rows(self) -> list[tuple[str, int, int, str]]:
        frame = self._spark.read.parquet(str(self._place / "out"))
        return sorted(tuple(row) for row in frame.select("topic", "partition", "offset", "value").collect())

    def values(self) -> list[str]:
        return sorted(row[3] for row in self.rows())


@pytest.fixture
def query(spark: SparkSession, broker: ThreadBroker, tmp_path: Path) -> Query:
    return Query(spark, broker, tmp_path)


def send(client: Client, topic: str, *values: str, partition: int = 0) -> None:
    with client.producer(topic) as producer:
        for value in values:
            producer.send(value.encode(), partition=partition)


def trim(broker: ThreadBroker, topic: str, before: int) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.kafka})
    [done] = admin.delete_records([confluent_kafka.TopicPartition(topic, 0, before)]).values()
    done.result()


def offsets_in(shown: object) -> object:
    """Spark Connect shows them as JSON."""
    return json.loads(shown) if isinstance(shown, str) else shown


def test_available_now_and_go_on(query: Query, client: Client) -> None:
    client.create_topic("t", partitions=2)
    send(client, "t", "a", "b", partition=0)
    send(client, "t", "c", partition=1)
    [batch] = query.run(subscribe="t", startingOffsets="earliest")
    [source] = batch["sources"]
    assert offsets_in(source["endOffset"]) == {"t": {"0": 2, "1": 1}}
    assert offsets_in(source["latestOffset"]) == {"t": {"0": 2, "1": 1}}
    assert query.run(subscribe="t") == []
    send(client, "t", "d", partition=1)
    query.run(subscribe="t", startingOffsets="earliest")
    assert query.rows() == [("t", 0, 0, "a"), ("t", 0, 1, "b"), ("t", 1, 0, "c"), ("t", 1, 1, "d")]


def test_a_limit_for_each_trigger(query: Query, client: Client) -> None:
    client.create_topic("t", partitions=1)
    send(client, "t", *map(str, range(25)))
    batches = query.run(subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger="10")
    assert [each["numInputRows"] for each in batches] == [10, 10, 5]
    assert query.values() == sorted(map(str, range(25)))


def test_the_latest_is_the_default(query: Query, client: Client) -> None:
    client.create_topic("t", partitions=1)
    send(client, "t", "before")
    running = query.start(until_stopped=True, subscribe="t")
    try:
        running.processAllAvailable()
        send(client, "t", "after")
        running.processAllAvailable()
    finally:
        running.stop()
    assert query.values() == ["after"]


def test_a_least_for_each_trigger(query: Query, client: Client) -> None:
    client.create_topic("t", partitions=1)
    options = {"subscribe": "t", "startingOffsets": "earliest", "minOffsetsPerTrigger": "5"}
    send(client, "t", "a", "b")
    running = query.start(until_stopped=True, maxTriggerDelay="1h", **options)
    try:
        _until(lambda: running.status["message"] == "Waiting for data to arrive")
        send(client, "t", "c", "d", "e")
        _until(lambda: has_read(running, 5))
    finally:
        running.stop()
    first = next(each for each in running.recentProgress if each.numInputRows)
    assert first.numInputRows == 5
    send(client, "t", "f")
    running = query.start(until_stopped=True, maxTriggerDelay="1ms", **options)
    try:
        _until(lambda: has_read(running, 1))
    finally:
        running.stop()
    assert query.values() == ["a", "b", "c", "d", "e", "f"]


def has_read(running: StreamingQuery, rows: int) -> bool:
    assert running.exception() is None
    return sum(each.numInputRows for each in running.recentProgress) >= rows


def _until(condition: Callable[[], bool]) -> None:
    """Spark tells its progress to whoever asks, and calls nobody."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_partitions_and_topics_that_come_later(query: Query, client: Client) -> None:
    client.create_topic("t1", partitions=1)
    send(client, "t1", "a")
    options = {"subscribePattern": "t.*", "startingOffsets": "latest"}
    running = query.start(until_stopped=True, **options)
    try:
        running.processAllAvailable()
        client.add_partitions("t1", 2)
        send(client, "t1", "b", partition=1)
        client.create_topic("t2", partitions=1)
        send(client, "t2", "c", "d")
        running.processAllAvailable()
    finally:
        running.stop()
    client.create_topic("t3", partitions=1)
    send(client, "t3", "e")
    query.run(**options)
    assert query.rows() == [("t1", 1, 0, "b"), ("t2", 0, 0, "c"), ("t2", 0, 1, "d"), ("t3", 0, 0, "e")]


@pytest.mark.parametrize("fails", [True, False])
def test_records_that_are_trimmed_before_they_are_read(
    query: Query, client: Client, broker: ThreadBroker, fails: bool
) -> None:
    client.create_topic("t", partitions=1)
    send(client, "t", "a")
    options = {"subscribe": "t", "startingOffsets": "earliest", "failOnDataLoss": str(fails).lower()}
    query.run(**options)
    send(client, "t", "b", "c")
    trim(broker, "t", 2)
    if fails:
        with pytest.raises(PySparkException, match="begins at offset 2, not at 1"):
            query.run(**options)
    else:
        query.run(**options)
        assert query.values() == ["a", "c"]


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_that_is_deleted_and_made_anew(query: Query, client: Client, fails: bool) -> None:
    client.create_topic("t", partitions=1)
    send(client, "t", "a", "b", "c")
    options = {"subscribe": "t", "startingOffsets": "earliest", "failOnDataLoss": str(fails).lower()}
    query.run(**options)
    client.delete_topic("t")
    if fails:
        with pytest.raises(PySparkException, match="was deleted, though offset 3 was reached"):
            query.run(**options)
    else:
        assert query.run(**options) == []
    client.create_topic("t", partitions=1)
    send(client, "t", "new")
    if fails:
        with pytest.raises(PySparkException, match="ends at 1, though 3 was reached"):
            query.run(**options)
    else:
        query.run(**options)
        assert query.values() == ["a", "b", "c", "new"]


def test_an_open_transaction_is_waited_for(query: Query, client: Client, broker: ThreadBroker) -> None:
    client.create_topic("t", partitions=1)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.kafka, "transactional.id": "x"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("t", b"a")
    producer.flush()
    send(client, "t", "b")
    options = {"subscribe": "t", "startingOffsets": "earliest"}
    assert query.run(**options) == []
    producer.commit_transaction()
    query.run(**options)
    assert query.values() == ["a", "b"]


def test_a_groups_lag_shows_how_far_it_is(query: Query, client: Client) -> None:
    client.create_topic("t", partitions=1)
    send(client, "t", "a", "b", "c", "d", "e")
    options = {"subscribe": "t", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "2"}
    query.run(**options, **{"kafka.group.id": "report"})
    [place] = client.group_offsets(client.group("report"))
    # Spark says that a batch is done when it begins the next one.
    assert place.committed is not None and place.committed >= 4


def test_a_checkpoint_can_be_moved_from_sparks_kafka_source(query: Query, client: Client) -> None:
    """Both write {"topic": {"partition": offset}} into it, that one in any order."""
    client.create_topic("t", partitions=2)
    send(client, "t", "a", partition=0)
    query.run(subscribe="t", startingOffsets="earliest")
    log = query._place / "checkpoint" / "offsets" / "0"
    *before, last = log.read_text().splitlines()
    assert json.loads(last) == {"t": {"0": 1, "1": 0}}
    log.write_text("\n".join([*before, '{"t":{"1":0,"0":1}}']))
    (log.parent / f".{log.name}.crc").unlink(missing_ok=True)
    assert query.run(subscribe="t", startingOffsets="earliest") == [], "the same offsets, nothing new"
    send(client, "t", "b", partition=1)
    [batch] = query.run(subscribe="t", startingOffsets="earliest")
    assert batch["numInputRows"] == 1
    assert query.values() == ["a", "b"]
