"""Rows of a key or message id: those that searches of the broker find."""

from typing import TypeAlias

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from posthouse.records.batch import parse_header
from posthouse.records.builder import BatchBuilder
from posthouse.records.record_names import Name, NameKind, names_in
from posthouse.spark.columns import BatchDecoder
from posthouse.spark.name_filter import NameFilter, may_have
from posthouse.spark.schema import arrow_schema, source_schema

Row: TypeAlias = tuple[bytes | None, list[tuple[str, bytes | None]]]

WORDS = st.sampled_from([b"", b"a", b"ab", b"b"])
VALUES = st.none() | st.lists(WORDS, max_size=3).map(b" ".join)
HEADERS = st.tuples(st.sampled_from(["KEYS", "UNIQ_KEY", "amqp.message-id", "other"]), VALUES)
ROWS = st.lists(st.tuples(st.none() | WORDS, st.lists(HEADERS, max_size=3)), min_size=1, max_size=12)
NAMES = st.builds(Name, st.sampled_from(NameKind), WORDS)
SCHEMA = arrow_schema(source_schema(include_headers=False))


@given(ROWS, NAMES, st.integers(0, 4), st.booleans())
def test_the_rows_that_searches_find(rows: list[Row], name: Name, skipped: int, all_columns: bool) -> None:
    schema = SCHEMA if all_columns else pa.schema([SCHEMA.field("offset")])
    wanted = NameFilter(name, schema)
    builder = BatchBuilder()
    for key, headers in rows:
        builder.add(key, b"value", headers, 1)
    batch = builder.build()
    header = parse_header(batch)
    decoder = BatchDecoder(wanted.schema, "t", 0)
    expected = [number for number, row in enumerate(rows) if name in names_in(*row)]
    assert may_have(batch, header, name) or not expected
    [decoded] = [*decoder.add(batch, header), *decoder.finish()]
    found = wanted.select(decoded.slice(skipped))
    assert found.schema == schema
    assert found.column("offset").to_pylist() == [each for each in expected if each >= skipped]


def test_batches_without_the_bytes_are_passed_over() -> None:
    builder = BatchBuilder()
    builder.add(b"key", b"value", [("KEYS", b"one two")], 1)
    batch = builder.build()
    header = parse_header(batch)
    assert may_have(batch, header, Name(NameKind.KEY, b"two"))
    assert not may_have(batch, header, Name(NameKind.KEY, b"three"))
