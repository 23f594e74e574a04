"""`spark.read.format("posthouse")`: every option, on real Spark."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import confluent_kafka
import confluent_kafka.admin
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from posthouse.client import Client
from posthouse.testing import ThreadBroker

pytestmark = pytest.mark.xdist_group("spark")

Read = Callable[..., DataFrame]


@pytest.fixture
def read(spark: SparkSession, broker: ThreadBroker) -> Read:
    def load(schema: str | None = None, **options: str) -> DataFrame:
        reader = spark.read.format("posthouse").option("kafka.bootstrap.servers", broker.kafka)
        if schema:
            reader = reader.schema(schema)
        return reader.options(**options).load()

    return load


def fill(client: Client, topic: str, partitions: int, each: int, *, since: int = 1_000_000) -> None:
    """Records `PARTITION-NUMBER`, one a second, long ago."""
    client.create_topic(topic, partitions=partitions, settings={"retention.ms": "-1"})
    with client.producer(topic) as producer:
        for index in range(partitions):
            for number in range(each):
                producer.send(b"%d-%d" % (index, number), partition=index, timestamp=since + number * 1000)


def values(frame: DataFrame) -> list[str]:
    return sorted(row.value.decode() for row in frame.select("value").collect())


def tasks(frame: DataFrame) -> int:
    """How many of them have rows."""
    return frame.select(F.spark_partition_id()).distinct().count()


def expected(partitions: range, numbers: range) -> list[str]:
    return sorted(f"{index}-{number}" for index in partitions for number in numbers)


def test_every_column(read: Read, client: Client) -> None:
    client.create_topic("t", partitions=2, settings={"retention.ms": "-1"})
    with client.producer("t") as producer:
        producer.send(b"v", b"k", [("h", b"1"), ("n", None)], timestamp=1_700_000_000_123, partition=1)
        producer.send(None, None, timestamp=1_700_000_000_000, partition=1)
        producer.send(b"", b"", timestamp=0, partition=0)
    rows = read(subscribe="t", includeHeaders="true").orderBy("partition", "offset").collect()
    moment = datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)
    assert [
        (row.key, row.value, row.topic, row.partition, row.offset, row.timestampType) for row in rows
    ] == [
        (b"", b"", "t", 0, 0, 0),
        (b"k", b"v", "t", 1, 0, 0),
        (None, None, "t", 1, 1, 0),
    ]
    assert [row.headers for row in rows] == [None, [("h", b"1"), ("n", None)], None]
    assert rows[1].timestamp.astimezone(UTC) == moment


def test_the_schema_is_that_of_sparks_kafka_source(read: Read, client: Client) -> None:
    client.create_topic("t")
    plain = StructType.fromDDL(
        "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
        "timestampType INT"
    )
    assert read(subscribe="t").schema == plain
    with_headers = read(subscribe="t", includeHeaders="true").schema
    assert with_headers.fieldNames()[-1] == "headers"
    assert read(subscribe="t", includeHeaders="true").drop("headers").schema == plain
    assert with_headers["headers"].dataType.simpleString() == "array<struct<key:string,value:binary>>"


def test_offsets(read: Read, client: Client) -> None:
    fill(client, "t", 2, 10)
    ranged = read(
        subscribe="t",
        startingOffsets='{"t": {"0": 3, "1": -2}}',
        endingOffsets='{"t": {"0": 5, "1": -1}}',
    )
    assert values(ranged) == sorted([*expected(range(1), range(3, 5)), *expected(range(1, 2), range(10))])
    assert values(read(subscribe="t", startingOffsets="earliest", endingOffsets="latest")) == expected(
        range(2), range(10)
    )


def test_times(read: Read, client: Client) -> None:
    fill(client, "t", 2, 10)
    assert values(read(subscribe="t", startingTimestamp="1003000", endingTimestamp="1005000")) == expected(
        range(2), range(3, 5)
    )
    by_partition = read(
        subscribe="t",
        startingOffsetsByTimestamp='{"t": {"0": 1008000, "1": 1009000}}',
        endingOffsetsByTimestamp='{"t": {"0": 1009000, "1": 99000000}}',
    )
    assert values(by_partition) == ["0-8", "1-9"]
    with pytest.raises(PySparkException, match="has no record from time 99000000"):
        read(subscribe="t", startingTimestamp="99000000").collect()
    late = read(subscribe="t", startingTimestamp="99000000", startingOffsetsByTimestampStrategy="latest")
    assert values(late) == []


def test_which_topics(read: Read, client: Client) -> None:
    for name in ("orders.de", "orders.fr", "other"):
        fill(client, name, 2, 1)

    def topics(frame: DataFrame) -> set[tuple[str, int]]:
        return {(row.topic, row.partition) for row in frame.collect()}

    both = {("orders.de", 0), ("orders.de", 1), ("orders.fr", 0), ("orders.fr", 1)}
    assert topics(read(subscribe="orders.de,orders.fr")) == both
    assert topics(read(subscribePattern="orders\\..*")) == both
    assert topics(read(subscribePattern="nothing")) == set()
    assert topics(read(assign='{"other": [1], "orders.de": [0]}')) == {("other", 1), ("orders.de", 0)}
    with pytest.raises(PySparkException, match="there is no topic 'missing'"):
        read(subscribe="missing").collect()
    with pytest.raises(PySparkException, match="has no partition 7"):
        read(assign='{"other": [7]}').collect()


def test_pieces(read: Read, client: Client) -> None:
    fill(client, "t", 2, 30)
    assert tasks(read(subscribe="t")) == 2
    many = read(subscribe="t", minPartitions="6")
    assert tasks(many) == 6
    assert values(many) == expected(range(2), range(30))
    small = read(subscribe="t", maxRecordsPerPartition="7")
    assert tasks(small) == 10
    assert values(small) == expected(range(2), range(30))


def test_columns_that_are_asked_for(read: Read, client: Client) -> None:
    fill(client, "t", 1, 3)
    frame = read(schema="offset BIGINT, value BINARY", subscribe="t")
    assert [tuple(row) for row in frame.orderBy("offset").collect()] == [
        (0, b"0-0"),
        (1, b"0-1"),
        (2, b"0-2"),
    ]
    with pytest.raises(PySparkException, match="has no column 'ofset'"):
        read(schema="ofset BIGINT", subscribe="t").collect()
    with pytest.raises(PySparkException, match="column 'value' is binary, not string"):
        read(schema="value STRING", subscribe="t").collect()


@pytest.fixture(params=["true", "false"])
def pushdown(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[None]:
    """Spark's switch for filters that go to Python sources; its default is off."""
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, request.param)
    yield
    spark.conf.unset(name)


@pytest.mark.usefixtures("pushdown")
def test_conditions(read: Read, client: Client) -> None:
    fill(client, "t", 3, 20)

    def found(condition: str) -> list[str]:
        return values(read(subscribe="t").where(condition))

    assert found("partition = 1 and offset >= 5 and offset < 8") == expected(range(1, 2), range(5, 8))
    few = [*expected(range(1), range(2)), *expected(range(2, 3), range(2))]
    assert found("partition in (0, 2) and offset <= 1 and topic = 't'") == sorted(few)
    assert found("topic = 'other'") == []
    late = "timestamp >= timestamp_millis(1018000) and timestamp < timestamp_millis(1019000)"
    assert found(late) == expected(range(3), range(18, 19))
    assert found("value = '0-3'") == ["0-3"]


@pytest.mark.usefixtures("pushdown")
def test_one_frame_for_several_queries(read: Read, client: Client) -> None:
    """Spark keeps the partitions that it planned with the frame, whatever the query is."""
    fill(client, "t", 2, 2)
    frame = read(subscribe="t")
    first, second = frame.where("partition = 0"), frame.where("partition = 1")
    assert values(first) == ["0-0", "0-1"]
    assert values(frame) == expected(range(2), range(2))
    assert values(first.union(second)) == expected(range(2), range(2))
    assert first.alias("a").join(second.alias("b"), on="offset").select("a.value", "b.value").count() == 2
    with client.producer("t") as producer:
        producer.send(b"0-2", partition=0)
    assert values(frame) == expected(range(2), range(2)), "docs/spark.md says so"
    assert values(read(subscribe="t").where("partition = 0")) == expected(range(1), range(3))


def test_only_what_is_committed(read: Read, client: Client, broker: ThreadBroker) -> None:
    client.create_topic("t", partitions=1)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.kafka, "transactional.id": "x"})
    producer.init_transactions()
    for value, commit in ((b"committed", True), (b"aborted", False), (b"again", True)):
        producer.begin_transaction()
        producer.produce("t", value)
        producer.flush()
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.begin_transaction()
    producer.produce("t", b"open")
    producer.flush()
    assert values(read(subscribe="t")) == ["again", "committed"]
    uncommitted = read(subscribe="t", **{"kafka.isolation.level": "read_uncommitted"})
    assert values(uncommitted) == ["aborted", "again", "committed", "open"]
    producer.abort_transaction()


def test_what_was_trimmed_is_lost(read: Read, broker: ThreadBroker, client: Client) -> None:
    fill(client, "t", 1, 10)
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.kafka})
    [trimmed] = admin.delete_records([confluent_kafka.TopicPartition("t", 0, 4)]).values()
    trimmed.result()
    assert values(read(subscribe="t")) == expected(range(1), range(4, 10))
    asked = {"subscribe": "t", "startingOffsets": '{"t": {"0": 2}}'}
    with pytest.raises(PySparkException, match="begins at offset 4, not at 2"):
        read(**asked).collect()
    assert values(read(failOnDataLoss="false", **asked)) == expected(range(1), range(4, 10))
    beyond = {"subscribe": "t", "endingOffsets": '{"t": {"0": 12}}'}
    with pytest.raises(PySparkException, match="ends at offset 10, not at 12"):
        read(**beyond).collect()
    assert values(read(failOnDataLoss="false", **beyond)) == expected(range(1), range(4, 10))


def test_wrong_options_fail_before_anything_is_read(read: Read, client: Client) -> None:
    client.create_topic("t", partitions=1)
    with pytest.raises(PySparkException, match="did you mean 'subscribe'"):
        read(subscribee="t").schema  # noqa: B018 (Spark Connect looks at options only when it has to)
    with pytest.raises(PySparkException, match="leaves out partition 0"):
        read(subscribe="t", startingOffsets='{"t": {"9": 0}}').collect()
    with pytest.raises(PySparkException, match="no broker answers"):
        nobody = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "200"}
        read(subscribe="t", **nobody).collect()
