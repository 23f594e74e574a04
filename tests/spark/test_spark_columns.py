"""Arrow record batches equal the records of the log, with the schema that Spark asks for, and back."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from posthouse.model.errors import CorruptBatch, InvalidRecord
from posthouse.records import columns_pure
from posthouse.records.batch import Readable, parse_header, stamp_log_append_time
from posthouse.records.builder import BatchBuilder
from posthouse.records.column_batches import encode_batches
from posthouse.records.columns import KERNEL, Kernel
from posthouse.records.compression import Codec
from posthouse.records.partitioner import partition_of
from posthouse.records.record import Record, body_of, iter_records
from posthouse.records.spans import iter_spans, with_records
from posthouse.spark.columns import BatchDecoder
from posthouse.spark.rows import place_rows, record_columns
from posthouse.spark.schema import arrow_schema, source_schema
from tests.examples import examples

NOW = 1_700_000_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WHOLE = arrow_schema(source_schema(include_headers=True))
SPARK_NAMES = WHOLE.names
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

kernels = pytest.mark.parametrize("kernel", [columns_pure, KERNEL], ids=["pure", "chosen"])


def spark_schema(**columns: DataType) -> pa.Schema:
    fields = [StructField(name, kind) for name, kind in columns.items()]
    return to_arrow_schema(StructType(fields), timezone="UTC")


OFFSET = spark_schema(offset=LongType())


def built(
    records: Sequence[Record], base_offset: int = 0, codec: Codec = Codec.NONE, **how: int
) -> bytearray:
    builder = BatchBuilder(codec, **how)  # type: ignore[arg-type]
    for record in records:
        builder.add(record.key, record.value, record.headers, record.timestamp)
    return builder.build(base_offset)


def add(
    decoder: BatchDecoder, *batches: Readable, first: int = 0, end: int | None = None
) -> list[pa.RecordBatch]:
    given = [each for batch in batches for each in decoder.add(batch, parse_header(batch), first, end)]
    return [*given, *decoder.finish()]


def expected_row(record: Record, kind: int = 0) -> dict[str, Any]:
    return {
        "key": record.key,
        "value": record.value,
        "topic": "some topic",
        "partition": 3,
        "offset": record.offset,
        "timestamp": EPOCH + timedelta(milliseconds=record.timestamp),
        "timestampType": kind,
        "headers": [{"key": name, "value": value} for name, value in record.headers] or None,
    }


payloads = st.none() | st.binary(max_size=40)
pairs = st.lists(st.tuples(st.text(max_size=8), payloads), max_size=3).map(tuple)
records = st.builds(Record, st.just(0), st.integers(-1, 2 * NOW), payloads, payloads, pairs)


@kernels
@settings(max_examples=examples(80), deadline=None)
@given(
    batches=st.lists(st.tuples(st.lists(records, min_size=1, max_size=12), st.sampled_from(list(Codec)))),
    max_rows=st.integers(1, 20),
    max_bytes=st.integers(1, 500),
)
def test_record_batches_hold_what_the_log_holds(
    kernel: Kernel, batches: list[tuple[list[Record], Codec]], max_rows: int, max_bytes: int
) -> None:
    decoder = BatchDecoder(WHOLE, "some topic", 3, max_rows=max_rows, max_bytes=max_bytes, kernel=kernel)
    offset, logged = 0, []
    for rows, codec in batches:
        logged.append(built(rows, offset, codec))
        offset += len(rows)
    given = add(decoder, *logged)
    for each in given:
        each.validate(full=True)
        assert each.schema.equals(WHOLE, check_metadata=True)
        assert 0 < each.num_rows <= max_rows
    assert [row for each in given for row in each.to_pylist()] == [
        expected_row(record) for batch in logged for record in iter_records(batch)
    ]
    assert decoder.rows == offset


def test_the_schema_is_the_one_that_spark_compares_with() -> None:
    schema = spark_schema(
        key=BinaryType(),
        value=BinaryType(),
        topic=StringType(),
        partition=IntegerType(),
        offset=LongType(),
        timestamp=TimestampType(),
        timestampType=IntegerType(),
        headers=ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
    )
    (given,) = add(BatchDecoder(schema, "t", 0), built([Record(0, NOW, b"k", b"v", (("h", b"1"),))]))
    assert given.schema == schema
    assert given.schema == WHOLE


@pytest.mark.parametrize(
    "names", [["offset"], ["value", "key"], ["timestampType", "topic"], SPARK_NAMES[::-1]]
)
def test_a_schema_may_leave_columns_out_and_reorder_them(names: list[str]) -> None:
    schema = pa.schema([WHOLE.field(name) for name in names])
    batch = built([Record(0, NOW, None, b"v"), Record(0, NOW + 1, b"k", None)], 40)
    (given,) = add(BatchDecoder(schema, "some topic", 3), batch)
    assert given.schema == schema
    rows = [expected_row(record) for record in iter_records(batch)]
    assert given.to_pylist() == [{name: row[name] for name in names} for row in rows]


@kernels
def test_columns_that_are_left_out_are_not_decoded(kernel: Kernel) -> None:
    batch = built([Record(0, NOW, b"k" * 1000, b"v" * 1000, (("h", b"h" * 1000),))])
    size = {}
    for name in ("offset", "key", "value", "headers"):
        decoder = BatchDecoder(pa.schema([WHOLE.field(name)]), "t", 0, kernel=kernel)
        assert list(decoder.add(batch, parse_header(batch))) == []
        size[name] = decoder._buffers.bytes
    assert size == {"offset": 0, "key": 1000, "value": 1000, "headers": 1001}


@pytest.mark.parametrize(
    ("name", "kind"),
    [("colour", BinaryType()), ("offset", IntegerType()), ("value", StringType()), ("timestamp", LongType())],
)
def test_a_column_that_records_do_not_have_is_refused(name: str, kind: DataType) -> None:
    with pytest.raises(ValueError, match="records have no column"):
        BatchDecoder(spark_schema(**{name: kind}), "t", 0)


def test_a_schema_without_columns_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a column"):
        BatchDecoder(pa.schema([]), "t", 0)


def test_only_the_offsets_asked_for_are_given() -> None:
    decoder = BatchDecoder(OFFSET, "t", 0)
    batches = [built([Record(0, NOW, None, b"v")] * 4, base) for base in (10, 14, 18)]
    given = add(decoder, *batches, first=12, end=19)
    assert [row["offset"] for each in given for row in each.to_pylist()] == list(range(12, 19))


def test_batches_of_both_kinds_of_time_and_many_producers_share_a_record_batch() -> None:
    schema = spark_schema(
        timestampType=IntegerType(),
        timestamp=TimestampType(),
        producerId=LongType(),
        producerEpoch=ShortType(),
        sequence=IntegerType(),
    )
    plain = built([Record(0, NOW, None, b"v")] * 2)
    stamped = built(
        [Record(0, NOW, None, b"v")] * 3, 2, producer_id=9, producer_epoch=4, base_sequence=2**31 - 2
    )
    stamp_log_append_time(stamped, NOW + 5)
    (given,) = add(BatchDecoder(schema, "t", 0), plain, stamped)
    columns = given.to_pydict()
    assert columns["timestampType"] == [0, 0, 1, 1, 1]
    assert columns["timestamp"][1:3] == [
        EPOCH + timedelta(milliseconds=NOW),
        EPOCH + timedelta(milliseconds=NOW + 5),
    ]
    assert columns["producerId"] == [-1, -1, 9, 9, 9]
    assert columns["producerEpoch"] == [-1, -1, 4, 4, 4]
    assert columns["sequence"] == [-1, -1, 2**31 - 2, 2**31 - 1, 0]


def test_the_sequence_follows_the_offset_where_compaction_left_gaps() -> None:
    batch = built([Record(0, NOW, b"k", b"v")] * 4, 70, producer_id=9, producer_epoch=4, base_sequence=100)
    header = parse_header(batch)
    body = body_of(batch, header)
    kept = with_records(header, body, list(iter_spans(body, header))[1::2])
    (given,) = add(BatchDecoder(spark_schema(offset=LongType(), sequence=IntegerType()), "t", 0), kept)
    assert given.to_pydict() == {"offset": [71, 73], "sequence": [101, 103]}


def test_a_batch_larger_than_a_record_batch_is_sliced() -> None:
    decoder = BatchDecoder(WHOLE, "some topic", 3, max_rows=10_000)
    batch = built([Record(0, NOW, None, b"v")] * 25_000)
    given = add(decoder, batch)
    assert [each.num_rows for each in given] == [8_334, 8_334, 8_332]
    assert given[2]["offset"][-1].as_py() == 24_999
    large = BatchDecoder(WHOLE, "some topic", 3, max_bytes=100_000)
    given = add(large, built([Record(0, NOW, None, bytes(10_000))] * 50))
    assert [each.num_rows for each in given] == [10] * 5


def test_small_batches_are_gathered() -> None:
    decoder = BatchDecoder(WHOLE, "some topic", 3, max_rows=100)
    given = add(decoder, *(built([Record(0, NOW, None, b"v")] * 3, base) for base in range(0, 300, 3)))
    assert [each.num_rows for each in given] == [99, 99, 99, 3]


def test_damage_is_an_error_and_what_came_before_is_kept() -> None:
    decoder = BatchDecoder(OFFSET, "t", 0)
    batch = built([Record(0, NOW, None, b"v")])
    damaged = built([Record(0, NOW, None, b"v")], 1)
    damaged[-1] = 9
    with pytest.raises(CorruptBatch):
        add(decoder, batch, damaged)
    (given,) = decoder.finish()
    assert given.num_rows == 1


text_or_bytes = [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()]


def rows_of(batch: pa.RecordBatch, rows: Readable | None = None, **how: Any) -> list[Record]:
    columns = record_columns(batch, now_ms=NOW)
    return [record for each in encode_batches(columns, rows, **how) for record in iter_records(each.batch)]


@pytest.mark.parametrize("kind", text_or_bytes, ids=str)
@pytest.mark.parametrize("start", [0, 1, 9])
def test_rows_of_spark_are_encoded(kind: pa.DataType, start: int) -> None:
    keys = [None if n % 3 == 0 else f"key {n}" for n in range(20)]
    values = [None if n % 5 == 0 else "value" * n for n in range(20)]
    headers = [
        None if n % 4 == 0 else [{"key": f"é{i}", "value": None if i else b"x"} for i in range(n % 3)]
        for n in range(20)
    ]
    times = [
        None if n % 6 == 0 else EPOCH + timedelta(milliseconds=NOW + n, microseconds=n) for n in range(20)
    ]
    batch = pa.RecordBatch.from_pydict(
        {
            "headers": pa.array(headers, HEADERS),
            "timestamp": pa.array(times, pa.timestamp("us", tz="UTC")),
            "key": pa.array(keys, pa.string()).cast(kind),
            "value": pa.array(values, pa.string()).cast(kind),
        }
    ).slice(start)
    assert [record[1:] for record in rows_of(batch, codec=Codec.ZSTD, max_bytes=300)] == [
        (
            NOW if n % 6 == 0 else NOW + n,
            None if n % 3 == 0 else f"key {n}".encode(),
            None if n % 5 == 0 else b"value" * n,
            tuple((f"é{i}", None if i else b"x") for i in range(n % 3)) if n % 4 else (),
        )
        for n in range(start, 20)
    ]


def test_only_a_value_is_needed() -> None:
    batch = pa.RecordBatch.from_pydict({"value": ["a", None]})
    assert [record[1:] for record in rows_of(batch)] == [(NOW, None, b"a", ()), (NOW, None, None, ())]


def test_columns_of_nothing_but_null_are_taken() -> None:
    nothing = pa.nulls(2)
    batch = pa.RecordBatch.from_pydict(dict.fromkeys(["key", "value", "headers", "timestamp"], nothing))
    assert [record[1:] for record in rows_of(batch)] == [(NOW, None, None, ())] * 2


def test_no_rows_make_no_batches() -> None:
    batch = pa.RecordBatch.from_pydict({"value": pa.array([], pa.string())})
    assert rows_of(batch) == []
    assert place_rows(batch, "t", lambda topic: 2, lambda topic: 0) == {}


def test_headers_with_further_fields_and_in_another_order_are_understood() -> None:
    kind = pa.large_list(pa.struct([("n", pa.int32()), ("value", pa.binary()), ("key", pa.string())]))
    headers = pa.array([[{"n": 1, "value": b"v", "key": "k"}], []], kind)
    batch = pa.RecordBatch.from_pydict({"value": ["a", "b"], "headers": headers})
    assert [record.headers for record in rows_of(batch)] == [(("k", b"v"),), ()]


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"key": ["a"]}, "no column 'value'"),
        ({"value": [1]}, "'value' is int64; cast it"),
        ({"value": ["a"], "key": [1]}, "'key' is int64; cast it"),
        ({"value": ["a"], "timestamp": [1]}, "'timestamp' is int64; cast it"),
        ({"value": ["a"], "headers": ["h"]}, "'headers' is string; make it"),
        ({"value": ["a"], "headers": [[{"key": b"a", "value": b"b"}]]}, "cast the keys to string"),
        ({"value": ["a"], "headers": pa.array([[None]], HEADERS)}, "a header is null"),
        ({"value": ["a"], "headers": pa.array([[{"value": b"b"}]], HEADERS)}, "a header has no key"),
    ],
)
def test_rows_that_are_no_records_are_refused(columns: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidRecord, match=sentence):
        rows_of(pa.RecordBatch.from_pydict(columns))


def placed(
    batch: pa.RecordBatch, topic: str | None = None, **partitions: int
) -> dict[tuple[str, int], list[int]]:
    rows = place_rows(batch, topic, partitions.__getitem__, lambda topic: partitions[topic] - 1)
    return {place: list(memoryview(group).cast("B").cast("i")) for place, group in rows.items()}


@pytest.mark.parametrize("kind", text_or_bytes, ids=str)
def test_rows_go_where_their_keys_belong(kind: pa.DataType) -> None:
    keys = [None if n % 5 == 0 else f"key {n}" for n in range(30)]
    batch = pa.RecordBatch.from_pydict({"key": pa.array(keys, pa.string()).cast(kind), "value": keys}).slice(
        3
    )
    expected: dict[tuple[str, int], list[int]] = {}
    for row, key in enumerate(keys[3:]):
        number = 3 if key is None else partition_of(key.encode(), 4)
        expected.setdefault(("t", number), []).append(row)
    assert placed(batch, "t", t=4) == expected


def test_rows_go_to_the_topic_and_partition_they_name() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "topic": ["skipped", "a", "b", "a", "b", "a", "a"],
            "partition": pa.array([0, 1, 0, None, 2, 1, None], pa.int32()),
            "key": [b"", b"k", b"k", b"k", None, None, None],
            "value": ["v"] * 7,
        }
    ).slice(1)
    expected: dict[tuple[str, int], list[int]] = {("a", 1): [0, 4], ("b", 0): [1], ("b", 2): [3]}
    expected.setdefault(("a", partition_of(b"k", 3)), []).append(2)
    expected.setdefault(("a", 2), []).append(5)
    assert placed(batch, a=3, b=3) == {place: sorted(rows) for place, rows in expected.items()}
    # The option goes before the column.
    assert {topic for topic, _ in placed(batch, "c", c=3)} == {"c"}


def test_rows_without_key_and_partition_stay_together() -> None:
    assert placed(pa.RecordBatch.from_pydict({"value": ["v"] * 3}), "t", t=2) == {("t", 1): [0, 1, 2]}
    batch = pa.RecordBatch.from_pydict({"value": ["v"] * 3, "topic": ["t", "u", "t"]})
    assert placed(batch, t=2, u=1) == {("t", 1): [0, 2], ("u", 0): [1]}


def test_what_was_placed_is_encoded_in_its_order() -> None:
    batch = pa.RecordBatch.from_pydict(
        {"topic": ["a", "b", "a", "b"], "value": [b"0", b"1", b"2", b"3"], "key": [b"k"] * 4}
    )
    groups = place_rows(batch, None, lambda topic: 1, lambda topic: 0)
    values = {topic: [record.value for record in rows_of(batch, rows)] for (topic, _), rows in groups.items()}
    assert values == {"a": [b"0", b"2"], "b": [b"1", b"3"]}


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"value": ["a"]}, "name no topic"),
        ({"value": ["a"], "topic": pa.array([None], pa.string())}, "topic is null"),
        ({"value": ["a"], "topic": ["t"], "partition": [2]}, "goes to partition 2, but topic 't' has 0 to 1"),
        ({"value": ["a"], "topic": ["t"], "partition": [-1]}, "goes to partition -1"),
    ],
)
def test_rows_that_have_no_place_are_refused(columns: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidRecord, match=sentence):
        placed(pa.RecordBatch.from_pydict(columns), t=2)
