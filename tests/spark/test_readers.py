"""What the readers plan and read, without Spark around them: moments that a query cannot be stopped at."""

from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from posthouse.client import Client
from posthouse.spark.archive.manifest import Change, Log, Manifest, Range
from posthouse.spark.archive.root import Root
from posthouse.spark.live import LivePiece
from posthouse.spark.options import parse_source
from posthouse.spark.reading import BatchReader
from posthouse.spark.schema import source_schema
from posthouse.spark.streaming import StreamReader
from posthouse.testing import ThreadBroker
from tests.spark.archive.records import NOON, Record, write

SCHEMA = source_schema(include_headers=False)


def send(client: Client, *values: str) -> None:
    with client.producer("t") as producer:
        for value in values:
            producer.send(value.encode(), partition=0)


def trim(broker: ThreadBroker, before: int) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.kafka})
    [done] = admin.delete_records([confluent_kafka.TopicPartition("t", 0, before)]).values()
    done.result()


def stream(broker: ThreadBroker, **options: str) -> StreamReader:
    given = {"kafka.bootstrap.servers": broker.kafka, "subscribe": "t", "startingOffsets": "earliest"}
    return StreamReader(parse_source(given | options, streaming=True), SCHEMA)


def test_what_is_available_now_ends_where_the_log_ended_at_the_start(
    broker: ThreadBroker, client: Client
) -> None:
    client.create_topic("t", partitions=1)
    send(client, "a", "b", "c")
    reader = stream(broker, maxOffsetsPerTrigger="2")
    begin = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    send(client, "d")
    assert isinstance(reader.getDefaultReadLimit(), ReadMaxRows)
    first = reader.latestOffset(begin, reader.getDefaultReadLimit())
    assert first == {"t": {"0": 2}}
    assert reader.latestOffset(first, ReadAllAvailable()) == {"t": {"0": 3}}
    assert reader.reportLatestOffset() == {"t": {"0": 4}}
    reader.stop()


def test_too_few_records_wait_for_others_or_for_their_time(broker: ThreadBroker, client: Client) -> None:
    client.create_topic("t", partitions=1)
    send(client, "a", "b")
    begin = {"t": {"0": 0}}
    patient = stream(broker, minOffsetsPerTrigger="3", maxTriggerDelay="1h")
    assert patient.latestOffset(begin, ReadAllAvailable()) == begin
    hasty = stream(broker, minOffsetsPerTrigger="3", maxTriggerDelay="0ms")
    assert hasty.latestOffset(begin, ReadAllAvailable()) == {"t": {"0": 2}}
    send(client, "c")
    assert patient.latestOffset(begin, ReadAllAvailable()) == {"t": {"0": 3}}
    patient.stop()


@pytest.mark.parametrize("is_archived", [True, False])
def test_records_that_are_archived_and_let_go_of_after_the_plan(
    broker: ThreadBroker, client: Client, tmp_path: Path, is_archived: bool
) -> None:
    client.create_topic("t", partitions=1, settings={"retention.ms": "-1"})
    send(client, *"abcdef")
    info = client.topic("t")
    manifest = Manifest(Root(str(tmp_path)))
    manifest.commit(Change(topics={info.id.hex(): "t"}), run="first")
    options = {"kafka.bootstrap.servers": broker.kafka, "subscribe": "t", "archive": str(tmp_path)}
    reader = BatchReader(parse_source(options, streaming=False), SCHEMA)
    [piece] = reader.partitions()
    assert isinstance(piece, LivePiece), "nothing is archived yet"
    if is_archived:
        records = {offset: Record(NOON, value.encode()) for offset, value in enumerate("ABCD")}
        files = write(manifest.root, info, {0: records})
        manifest.commit(Change(cover={Log(info.id.hex(), 0): Range(0, 4)}, add=files), run="second")
    trim(broker, 4)
    if is_archived:
        read = [value for batch in reader.read(piece) for value in batch.column("value").to_pylist()]
        assert read == [b"A", b"B", b"C", b"D", b"e", b"f"]
    else:
        with pytest.raises(Exception, match="failOnDataLoss"):
            list(reader.read(piece))
