"""Every example of Spark in README and docs runs as it is written, on whatever session there is."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import posthouse.spark
from posthouse.client import Client
from posthouse.spark.archive import Archiver
from posthouse.spark.pipelines.context import PipelineContext
from posthouse.spark.pipelines.orders import clean, sales
from posthouse.testing import ThreadBroker
from tests.spark.pages import example, examples
from tests.spark.sessions import KIND

pytestmark = pytest.mark.xdist_group("spark")
# They need a JVM of their own: tests/spark/test_plain_sessions.py runs them there.
untuned = pytest.mark.usefixtures("untuned")


class Page:
    """Runs the examples of a page."""

    def __init__(self, broker: ThreadBroker, data: Path) -> None:
        self._broker = broker
        self._data = data

    def run(self, name: str, number: int, **names: Any) -> dict[str, Any]:
        """What is defined afterwards."""
        text = example(name, number, self._broker.kafka, self._data)
        exec(compile(text, f"{name}, example {number}", "exec"), names)
        return names

    def value(self, name: str, number: int, **names: Any) -> Any:
        return eval(example(name, number, self._broker.kafka, self._data), names)


@pytest.fixture
def page(broker: ThreadBroker, tmp_path: Path) -> Page:
    return Page(broker, tmp_path)


def send(client: Client, topic: str, *values: str) -> None:
    with client.producer(topic) as producer:
        for value in values:
            producer.send(value.encode(), b"key")


def values(client: Client, topic: str) -> list[str]:
    return sorted((message.value or b"").decode() for message in client.messages(topic))


def test_none_is_left_out() -> None:
    counts = {page: len(blocks) for page, blocks in examples().items()}
    # The one for declarative pipelines is run by tests/spark/pipelines/test_declared.py.
    assert counts == {"spark.md": 4, "spark-sink.md": 3, "archive.md": 2, "pipelines.md": 3}


@untuned
def test_from_topic_to_topic(spark: SparkSession, page: Page, client: Client) -> None:
    client.create_topic("orders", partitions=1)
    query = page.run("spark.md", 0)["query"]
    try:
        query.processAllAvailable()
        send(client, "orders", "tea", "cake")
        query.processAllAvailable()
    finally:
        query.stop()
    assert values(client, "shouted") == ["CAKE", "TEA"]


@untuned
def test_a_batch_read(
    spark: SparkSession, page: Page, client: Client, capfd: pytest.CaptureFixture[str]
) -> None:
    client.create_topic("orders", partitions=1)
    send(client, "orders", "tea", "cake")
    orders = page.run("spark.md", 1, spark=spark)["orders"]
    assert sorted(bytes(row.value) for row in orders.collect()) == [b"cake", b"tea"]
    assert "|        0|    2|" in capfd.readouterr().out


@untuned
def test_columns_that_are_asked_for(
    spark: SparkSession, page: Page, broker: ThreadBroker, client: Client
) -> None:
    client.create_topic("orders", partitions=1)
    send(client, "orders", "tea")
    reader = page.value("spark.md", 2, spark=spark).option("kafka.bootstrap.servers", broker.kafka)
    assert [tuple(row) for row in reader.option("subscribe", "orders").load().collect()] == [(0, b"tea")]


@untuned
def test_records_of_a_key(spark: SparkSession, page: Page, client: Client) -> None:
    client.create_topic("orders", partitions=1)
    with client.producer("orders") as producer:
        producer.send(b"tea", b"4711")
        producer.send(b"cake", b"4712")
    order = page.run("spark.md", 3, spark=spark)["order"]
    assert [bytes(row.value) for row in order.collect()] == [b"tea"]


@untuned
def test_registered_by_hand(spark: SparkSession, broker: ThreadBroker, client: Client) -> None:
    client.create_topic("orders", partitions=1)
    send(client, "orders", "tea")
    another = spark if KIND == "connect" else spark.newSession()  # Connect has no such call
    posthouse.spark.register(another)
    reader = another.read.format("posthouse").option("kafka.bootstrap.servers", broker.kafka)
    assert reader.option("subscribe", "orders").load().count() == 1


@untuned
def test_the_sink(spark: SparkSession, page: Page, client: Client, tmp_path: Path) -> None:
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "orders.json").write_text('{"customer": "ann", "item": "tea"}\n')
    columns = "customer STRING, item STRING"
    orders = spark.readStream.schema(columns).json(str(tmp_path / "input"))
    query = page.run("spark-sink.md", 0, orders=orders)["query"]
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    streamed = '{"customer":"ann","item":"tea"}'
    assert values(client, "orders-clean") == [streamed]
    page.run("spark-sink.md", 1, frame=spark.createDataFrame([("bob", "cake")], columns))
    written = '{"customer":"bob","item":"cake"}'
    assert values(client, "orders-clean") == [streamed, written]


@untuned
def test_the_sink_in_foreach_batch(
    spark: SparkSession, page: Page, broker: ThreadBroker, client: Client
) -> None:
    options = {"kafka.bootstrap.servers": broker.kafka, "topic": "t"}
    write = page.run("spark-sink.md", 2, options=options)["write"]
    for batch_id, text in ((0, "a"), (0, "again"), (1, "b")):
        write(spark.createDataFrame([(text,)], "value STRING"), batch_id)
    assert values(client, "t") == ["a", "b"]


@untuned
def test_the_archive(
    spark: SparkSession, page: Page, broker: ThreadBroker, client: Client, tmp_path: Path
) -> None:
    client.create_topic("orders", partitions=1)
    send(client, "orders", "tea")
    Archiver(spark, broker.kafka, str(tmp_path / "archive")).run(["orders"])
    send(client, "orders", "cake")
    both = page.run("archive.md", 0, spark=spark)["orders"]
    assert sorted(bytes(row.value) for row in both.collect()) == [b"cake", b"tea"]
    assert page.run("archive.md", 1, spark=spark)["yesterday"].count() == 0


def test_a_pipeline(
    spark: SparkSession, page: Page, broker: ThreadBroker, client: Client, tmp_path: Path
) -> None:
    client.create_topic("orders", partitions=1)
    with client.producer("orders") as producer:
        for second in (0, 60):
            order = b'{"order_id": "1", "item": "tea", "quantity": 2, "price": 1.5}'
            producer.send(order, timestamp=1_790_000_000_000 + second * 1000)
    context = PipelineContext(spark=spark, bootstrap=broker.kafka, storage=str(tmp_path), once=True)
    pipeline = page.run("pipelines.md", 0, clean=clean, sales=sales)["pipeline"]
    for query in pipeline(spark, context):
        assert query.awaitTermination(100)
    [row] = spark.read.parquet(context.table("sales")).collect()
    assert (row.item, row.orders, row.revenue) == ("tea", 1, 3.0)
    [message] = client.messages("sales")
    assert message.key == b"tea"


@pytest.mark.usefixtures("tuned")
def test_the_session(spark: SparkSession, page: Page) -> None:
    """The second line names a cluster that is not there; the session that there is stays."""
    assert page.run("pipelines.md", 2)["spark"].sparkContext is spark.sparkContext
