"""What the sink says of options and columns, before anything runs."""

import pickle
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark'")

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from posthouse.client.together import CommitMember
from posthouse.records.compression import Codec
from posthouse.spark.errors import SparkError, StaleEpoch, WrongOption, WrongSchema
from posthouse.spark.sink import BatchSink, StreamSink
from posthouse.spark.sink_options import SinkOptions
from posthouse.spark.sink_task import TaskCommit, TaskWriter, check_epoch

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
BYTES, TEXT, INT, LONG = BinaryType(), StringType(), IntegerType(), LongType()
TIME, LOCAL_TIME, NULL = TimestampType(), TimestampNTZType(), NullType()


def pairs(key: DataType, value: DataType) -> ArrayType:
    return ArrayType(StructType().add("key", key).add("value", value))


ALL = {"value": BYTES, "key": TEXT, "topic": TEXT, "partition": INT, "timestamp": TIME} | {
    "headers": pairs(TEXT, BYTES),
    "offset": LONG,
    "timestampType": INT,
}


def schema(**columns: DataType) -> StructType:
    made = StructType()
    for name, kind in columns.items():
        made.add(name, kind)
    return made


VALUE = schema(value=TEXT)


def parse(**options: str) -> SinkOptions:
    return SinkOptions.parse(SERVERS | {name.replace("_", "."): value for name, value in options.items()})


def test_defaults() -> None:
    options = parse()
    assert options.is_exactly_once
    assert (options.topic, options.name, options.batch_id, options.codec) == (None, None, None, Codec.NONE)
    assert options.transaction_timeout_ms == 900_000


def test_names_are_not_case_sensitive_and_settings_of_producers_count() -> None:
    given = {
        "KAFKA.BOOTSTRAP.SERVERS": "h:1",
        "appid": "app",
        "BATCHID": "7",
        "Delivery": "Exactly-Once",
        "kafka.compression.type": "zstd",
        "kafka.transaction.timeout.ms": "5000",
        "kafka.batch.size": "20000",
        "kafka.request.timeout.ms": "1500",
        "kafka.delivery.timeout.ms": "2500",
        "kafka.acks": "-1",
        "kafka.security.protocol": "plaintext",
        "checkpointLocation": "/tmp/x",
        "kafka.linger.ms": "5",
    }
    options = SinkOptions.parse(given)
    assert (options.bootstrap, options.name, options.batch_id) == ("h:1", "app", 7)
    assert (options.codec, options.transaction_timeout_ms, options.batch_bytes) == (Codec.ZSTD, 5000, 20_000)
    assert (options.timeout, options.patience) == (1.5, 2.5)
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"topics": "t"}, "there is no option 'topics'; did you mean 'topic'"),
        ({"subscribe": "t"}, "there is no option 'subscribe'"),
        ({"topic": ""}, "'topic' is empty"),
        ({"delivery": "maybe"}, "'delivery' is one of exactly-once, at-least-once, not 'maybe'"),
        ({"kafka.acks": "1"}, "'kafka.acks' is one of all, -1, not '1'"),
        ({"kafka.enable.idempotence": "false"}, "'kafka.enable.idempotence' is one of true"),
        ({"kafka.compression.type": "brotli"}, "'kafka.compression.type' is one of none, gzip"),
        ({"kafka.transaction.timeout.ms": "soon"}, "'kafka.transaction.timeout.ms' is a whole number"),
        ({"kafka.security.protocol": "TLS"}, "'kafka.security.protocol' is one of PLAINTEXT, SSL, SASL_"),
        ({"kafka.sasl.mechanism": "PLAIN"}, "has no effect with kafka.security.protocol PLAINTEXT"),
        ({"kafka.transactional.id": "x"}, "there is no option 'kafka.transactional.id'"),
        ({"appId": ""}, "'appId' has 1 to 200 characters"),
        ({"appId": "x" * 201}, "'appId' has 1 to 200 characters"),
        ({"batchId": "1"}, "'batchId' needs 'appId'"),
        ({"batchId": "1", "appId": "a", "delivery": "at-least-once"}, "'batchId' needs 'appId'"),
    ],
)
def test_wrong_options(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(WrongOption, match=complaint) as raised:
        SinkOptions.parse(SERVERS | given)
    assert "\n" not in str(raised.value)


def test_servers_are_needed() -> None:
    with pytest.raises(WrongOption, match=r"'kafka\.bootstrap\.servers' is missing"):
        SinkOptions.parse({"topic": "t"})


@pytest.mark.parametrize(
    "columns",
    [ALL, {"value": TEXT, "topic": TEXT}, {"value": BYTES, "headers": NULL, "key": NULL, "partition": NULL}],
    ids=["all", "few", "nulls"],
)
def test_columns_that_are_taken(columns: dict[str, DataType]) -> None:
    options = parse(topic="t")
    for sink in (BatchSink(options, schema(**columns)), StreamSink(options, schema(**columns))):
        assert pickle.loads(pickle.dumps(sink))._options == options


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"key": TEXT}, "the rows have no column 'value'"),
        ({"value": TEXT, "Key": TEXT}, "the sink has no column 'Key'; rename it to 'key'"),
        ({"value": TEXT, "amount": INT}, "the sink has no column 'amount'; drop it"),
        ({"value": INT}, "the column 'value' is int; cast it to binary or string"),
        ({"value": schema(a=INT)}, r"to_json\(struct"),
        ({"value": TEXT, "key": LONG}, "the column 'key' is bigint"),
        ({"value": TEXT, "topic": BYTES}, "the column 'topic' is binary; cast it to string"),
        ({"value": TEXT, "partition": LONG}, "the column 'partition' is bigint; cast it to int"),
        ({"value": TEXT, "timestamp": LONG}, "the column 'timestamp' is bigint; cast it to timestamp"),
        ({"value": TEXT, "timestamp": LOCAL_TIME}, "cast it to timestamp with a time zone"),
        ({"value": TEXT, "headers": MapType(TEXT, BYTES)}, "the column 'headers' is map<string,binary>"),
        ({"value": TEXT, "headers": pairs(TEXT, TEXT)}, "the column 'headers' is array"),
    ],
)
def test_columns_that_are_not(columns: dict[str, DataType], complaint: str) -> None:
    for kind in (BatchSink, StreamSink):
        with pytest.raises(WrongSchema, match=complaint):
            kind(parse(topic="t"), schema(**columns))


def test_a_topic_is_needed() -> None:
    with pytest.raises(WrongSchema, match="the rows have no topic"):
        BatchSink(parse(), VALUE)
    BatchSink(parse(), schema(value=TEXT, topic=TEXT))


def test_a_topic_cannot_be_overwritten() -> None:
    with pytest.raises(WrongOption, match="cannot be overwritten"):
        BatchSink(parse(topic="t"), VALUE, overwrite=True)


def test_a_streaming_query_counts_by_itself() -> None:
    with pytest.raises(WrongOption, match="'batchId' is for batch writes"):
        StreamSink(parse(topic="t", appId="a", batchId="1"), VALUE)


def test_only_tasks_write() -> None:
    sinks: list[Any] = [kind(parse(topic="t"), VALUE) for kind in (BatchSink, StreamSink)]
    for sink in sinks:
        with pytest.raises(SparkError, match="Spark's tasks only"):
            sink.write(iter(()))


def test_messages_travel() -> None:
    member = CommitMember(transactional_id="q/0.0", producer_id=1, epoch=2)
    message = TaskCommit(name="q", member=member, rows=3)
    assert pickle.loads(pickle.dumps(message)) == message
    assert TaskWriter(name="q", sequence=1, partition=4, attempt=2).transactional_id == "q/4.2"


def test_epochs_only_go_forward() -> None:
    for committed in (None, 3, 4):
        check_epoch("q", 4, committed)
    with pytest.raises(StaleEpoch, match="choose another 'appId'"):
        check_epoch("q", 4, 5)
