"""Records whose headers stay encoded: the same as those that are decoded, or an error."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posthouse.model.errors import CorruptBatch
from posthouse.records.batch import parse_header, stamp, stamp_log_append_time
from posthouse.records.builder import BatchBuilder
from posthouse.records.compression import Codec
from posthouse.records.header_section import decode_section, encode_section
from posthouse.records.raw import NO_HEADERS, iter_raw
from posthouse.records.record import body_of, iter_records
from tests.examples import examples

NOW = 1_700_000_000_000

payloads = st.none() | st.binary(max_size=20) | st.binary(max_size=20).map(lambda piece: piece * 1000)
names = st.text(max_size=10) | st.text(max_size=10).map(lambda piece: piece * 20)
headers = st.lists(st.tuples(names, payloads), max_size=3)
times = st.integers(NOW - 100, NOW + 100_000) | st.integers(-1, 2**63 - 1)
records = st.lists(st.tuples(payloads, payloads, headers, times), min_size=1, max_size=200)


@settings(max_examples=examples(100), deadline=None)
@given(
    records,
    st.sampled_from(list(Codec)),
    st.integers(0, 2**40),
    st.integers(0, 220),
    st.integers(0, 220),
    st.booleans(),
)
def test_raw_records_are_the_records(
    made: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]],
    codec: Codec,
    base: int,
    first: int,
    end: int,
    append_time: bool,
) -> None:
    builder = BatchBuilder(codec)
    for key, value, with_headers, timestamp in made:
        builder.add(key, value, with_headers, timestamp)
    data = builder.build()
    if append_time:
        stamp_log_append_time(data, NOW)
    stamp(data, base, 0)
    header = parse_header(data)
    expected = [
        (each.offset, each.timestamp, each.key, each.value or b"", list(each.headers))
        for each in iter_records(data)
        if base + first <= each.offset < base + end
    ]
    found = [
        (each.offset, each.timestamp, each.key, each.value, _decoded(each.headers))
        for each in iter_raw(body_of(data, header), header, base + first, base + end)
    ]
    assert found == expected


def _decoded(section: bytes) -> list[tuple[str, bytes | None]]:
    return [(name.decode(), value) for name, value in decode_section(section)]


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=200), st.integers(1, 20), st.integers(0, 5), st.integers(0, 25))
def test_nonsense_is_an_error_or_comes_to_an_end(body: bytes, count: int, first: int, end: int) -> None:
    builder = BatchBuilder()
    builder.add(None, b"v", timestamp=NOW)
    header = parse_header(builder.build())._replace(count=count, last_offset_delta=count - 1)
    try:
        found = list(iter_raw(body, header, first, end))
    except CorruptBatch:
        return
    assert len(found) <= count
    assert all(first <= each.offset < end for each in found)


@settings(max_examples=examples(100), deadline=None)
@given(records, st.data())
def test_what_is_cut_off_is_an_error(
    made: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]], data: st.DataObject
) -> None:
    builder = BatchBuilder()
    for key, value, with_headers, timestamp in made:
        builder.add(key, value, with_headers, timestamp)
    batch = builder.build()
    header = parse_header(batch)
    body = body_of(batch, header)
    cut = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(CorruptBatch):
        list(iter_raw(body[:cut], header, 0, len(made)))


sections = st.lists(st.tuples(st.binary(max_size=50), payloads), max_size=5)


@given(sections)
def test_sections_are_read_as_they_were_written(made: list[tuple[bytes, bytes | None]]) -> None:
    section = encode_section(made)
    assert decode_section(section) == made
    for count in range(len(made) + 2):
        assert decode_section(section, count) == made[:count]


@given(headers)
def test_sections_are_what_is_in_a_batch(made: list[tuple[str, bytes | None]]) -> None:
    section = encode_section([(name.encode(), value) for name, value in made])
    decoded, raw = BatchBuilder(), BatchBuilder()
    decoded.add(b"k", b"v", made, NOW)
    raw.add_raw(b"k", b"v", section, NOW)
    assert decoded.build() == raw.build()
    assert section != NO_HEADERS or not made


@given(sections.filter(bool), st.data())
def test_sections_that_are_cut_off(made: list[tuple[bytes, bytes | None]], data: st.DataObject) -> None:
    section = encode_section(made)
    with pytest.raises(CorruptBatch):
        decode_section(section[: data.draw(st.integers(0, len(section) - 1))])


@given(st.binary(max_size=30))
def test_sections_of_nonsense(section: bytes) -> None:
    with contextlib.suppress(CorruptBatch):
        decode_section(section)
