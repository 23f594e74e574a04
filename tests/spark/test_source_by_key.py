"""Records of a key or message id: what the key index names is read, and rows are those of a scan."""

import logging
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from posthouse.client import Client
from posthouse.client.spans import Span
from posthouse.records.record_names import Name, NameKind
from posthouse.spark.archive.manifest import Change, Log, Manifest, Range
from posthouse.spark.archive.root import Root
from posthouse.spark.live import LivePiece
from posthouse.spark.options import parse_source
from posthouse.spark.reading import BatchReader
from posthouse.spark.schema import source_schema
from posthouse.spark.streaming import StreamReader
from posthouse.spark.tasks import read_piece
from posthouse.testing import ThreadBroker
from tests.spark.archive.records import NOON, Record, write

pytestmark = pytest.mark.xdist_group("spark")

SCHEMA = source_schema(include_headers=False)
COUNT = 6000


def fill(client: Client, topic: str, *, is_indexed: bool) -> None:
    """Keys 0 to 2999 in two partitions, about twice; every tenth record has an id and other keys."""
    client.create_topic(topic, partitions=2, settings={"index.keys": str(is_indexed).lower()})
    with client.producer(topic) as producer:
        for number in range(COUNT):
            headers = [("KEYS", b"tenth w%d" % (number % 4000)), ("UNIQ_KEY", b"id%d" % number)]
            key = b"%d" % (number % 3000) if number % 7 else None
            some = [] if number % 10 else headers
            producer.send(b"%d" % number, key, some, partition=number % 2)


def indexed(client: Client, topic: str) -> None:
    """Wait for the index: then nothing has to be read to find nothing."""
    name = Name(NameKind.KEY, b"in no record")
    wanted = [(partition, Span(0, COUNT // 2)) for partition in range(2)]
    deadline = time.monotonic() + 60
    while any(client.key_places(client.topic(topic), name, wanted, gap=0)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def reader(broker: ThreadBroker, topic: str, **options: str) -> BatchReader:
    given = {"kafka.bootstrap.servers": broker.kafka, "subscribe": topic}
    return BatchReader(parse_source(given | options, streaming=False), SCHEMA)


def pieces(found: BatchReader) -> list[LivePiece]:
    return [each for each in found.partitions() if isinstance(each, LivePiece)]


def values(found: BatchReader) -> list[int]:
    batches = [batch for each in found.partitions() for batch in found.read(each)]
    return sorted(int(value) for batch in batches for value in batch.column("value").to_pylist())


def test_rows_are_those_of_a_scan(spark: SparkSession, broker: ThreadBroker, client: Client) -> None:
    fill(client, "t", is_indexed=True)
    source = spark.read.format("posthouse").option("kafka.bootstrap.servers", broker.kafka)
    source = source.option("subscribe", "t")
    columns = ("partition", "offset", "key", "value")
    scanned = source.load().where(F.col("key") == F.lit("1234").cast("binary")).select(*columns)
    found = sorted(source.option("key", "1234").load().select(*columns).collect())
    assert len(found) == 2
    assert found == sorted(scanned.collect())
    # One plan: of a schema without the key, and of no records at all.
    narrow = source.schema("value BINARY")
    none = narrow.option("key", "in no record").load()
    other = narrow.option("key", "w10").load().where("value != CAST('10' AS BINARY)")
    assert [bytes(row.value) for row in other.union(none).collect()] == [b"4010"]


def test_only_what_the_index_names_is_planned(broker: ThreadBroker, client: Client) -> None:
    fill(client, "t", is_indexed=True)
    indexed(client, "t")
    [piece] = pieces(reader(broker, "t", key="1234"))
    assert piece.range.place.partition == 0
    assert piece.spans == (Span(617, 618), Span(2117, 2118))
    assert values(reader(broker, "t", key="1234")) == [1234, 4234]
    assert values(reader(broker, "t", messageId="id1230")) == [1230]
    assert values(reader(broker, "t", key="w20")) == [20, 4020]
    assert values(reader(broker, "t", key="MTIzNA==", keyEncoding="base64")) == [1234, 4234]
    assert pieces(reader(broker, "t", messageId="1230")) == []
    many = reader(broker, "t", key="tenth", maxRecordsPerPartition="1000")
    assert len(pieces(many)) == 3, "parts that are near each other are one, and it is cut"
    assert values(many) == list(range(0, COUNT, 10))
    late = reader(broker, "t", key="1234", startingOffsets='{"t": {"0": 618, "1": 0}}')
    assert values(late) == [4234]


def test_without_an_index_all_records_are_compared(
    broker: ThreadBroker, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    fill(client, "t", is_indexed=False)
    found = reader(broker, "t", key="w20")
    with caplog.at_level(logging.WARNING):
        assert {piece.spans for piece in pieces(found)} == {None}
    [said] = [record.getMessage() for record in caplog.records if record.name.startswith("posthouse.spark")]
    assert "all records of topic 't' are read" in said and "index.keys is false" in said
    assert values(found) == [20, 4020]
    assert values(reader(broker, "t", messageId="id1230")) == [1230]


def test_a_stream_compares(broker: ThreadBroker, client: Client) -> None:
    fill(client, "t", is_indexed=True)
    given = {"kafka.bootstrap.servers": broker.kafka, "subscribe": "t", "key": "1234"}
    stream = StreamReader(parse_source(given | {"startingOffsets": "earliest"}, streaming=True), SCHEMA)
    begin = stream.initialOffset()
    end = stream.latestOffset(begin, stream.getDefaultReadLimit())
    batches = [batch for each in stream.partitions(begin, end) for batch in stream.read(each)]
    assert sorted(value for batch in batches for value in batch.column("value").to_pylist()) == [
        b"1234",
        b"4234",
    ]
    stream.stop()


def test_archived_records_are_compared(broker: ThreadBroker, client: Client, tmp_path: Path) -> None:
    """The archive of this test has no keys at all, the log has one."""
    client.create_topic("t", partitions=1, settings={"index.keys": "true"})
    with client.producer("t") as producer:
        for number in range(4):
            producer.send(b"%d" % number, b"k")
    info = client.topic("t")
    manifest = Manifest(Root(str(tmp_path)))
    records = {offset: Record(NOON, b"archived") for offset in range(2)}
    files = write(manifest.root, info, {0: records})
    cover = {Log(info.id.hex(), 0): Range(0, 2)}
    manifest.commit(Change(topics={info.id.hex(): "t"}, cover=cover, add=files), run="first")
    found = reader(broker, "t", key="k", archive=str(tmp_path))
    assert len(found.partitions()) == 2
    assert values(found) == [2, 3]
    options = parse_source(
        {"kafka.bootstrap.servers": broker.kafka, "subscribe": "t", "archive": str(tmp_path)}, streaming=False
    )
    assert len([*read_piece(options, found._schema, found.partitions()[0])]) == 1, "without a key it has rows"
