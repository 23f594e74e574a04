"""Records with a header are found as decoding everything would find them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.model.errors import CorruptBatch
from posthouse.records.batch import parse_header
from posthouse.records.builder import BatchBuilder
from posthouse.records.header_search import records_with_header
from posthouse.records.record import body_of, iter_records

NAME = b"traceparent"
ENCODED = b"\x16traceparent"
"""The name with its length, as it lies in a record."""

names = st.sampled_from(["traceparent", "trace", "traceparents", "other"])
values = st.none() | st.binary(max_size=4) | st.just(ENCODED)
headers = st.lists(st.tuples(names, values), max_size=4)
records = st.tuples(values, values, headers)


def built(rows: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]]) -> bytes:
    builder = BatchBuilder()
    for number, (key, value, found) in enumerate(rows):
        builder.add(key, value, timestamp=number * 1000, headers=found)
    return bytes(builder.build(7))


@given(st.lists(records, min_size=1, max_size=20))
def test_finds_what_decoding_finds(
    rows: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
) -> None:
    batch = built(rows)
    header = parse_header(batch)
    expected = [
        (record.offset, [(name.encode(), value) for name, value in record.headers])
        for record in iter_records(batch)
        if any(name == "traceparent" for name, _ in record.headers)
    ]
    found = records_with_header(body_of(batch, header), header, NAME, most_records=1000)
    assert [tuple(hit) for hit in found] == expected


def test_looks_at_no_more_records_than_it_may() -> None:
    batch = built([(None, b"", [("traceparent", b"x")])] * 5)
    header = parse_header(batch)
    found = records_with_header(body_of(batch, header), header, NAME, most_records=3)
    assert [hit.offset for hit in found] == [7, 8, 9]


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_garbage_ends_in_one_error(before: bytes, after: bytes) -> None:
    header = parse_header(built([(None, b"", [])]))._replace(count=1_000_000)
    try:
        list(records_with_header(before + ENCODED + after, header, NAME, most_records=1000))
    except CorruptBatch:
        return


def test_a_record_beyond_the_end_is_an_error() -> None:
    header = parse_header(built([(None, b"", [])]))
    with pytest.raises(CorruptBatch):
        list(records_with_header(b"\x7e" + ENCODED, header, NAME, most_records=10))
