"""Records in their places, and batches made of some of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posthouse.model.errors import CorruptBatch, MissingKeys
from posthouse.model.topic_config import TimestampType
from posthouse.records.batch import BatchHeader, parse_header, verify_crc
from posthouse.records.builder import BatchBuilder
from posthouse.records.compression import Codec
from posthouse.records.record import Record, body_of, iter_records
from posthouse.records.spans import MAX_DELTA, Span, check_keys, emptied, filler, iter_spans, with_records

BYTES = st.none() | st.binary(max_size=9000)
RECORDS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=200),
        BYTES,
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2),
        st.integers(-1, 2**62),
    ),
    min_size=1,
    max_size=80,
)
BATCHES = st.tuples(RECORDS, st.sampled_from(Codec), st.sampled_from(TimestampType))

Made = tuple[
    list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]], Codec, TimestampType
]


def build(made: Made) -> tuple[bytes, BatchHeader, list[Record], list[Span]]:
    records, codec, timestamp_type = made
    builder = BatchBuilder(codec, timestamp_type, producer_id=5, producer_epoch=1, base_sequence=9)
    for record in records:
        builder.add(*record)
    batch = bytes(builder.build(1000))
    header = parse_header(batch)
    return batch, header, list(iter_records(batch)), list(iter_spans(body_of(batch, header), header))


@given(BATCHES)
def test_spans_are_where_the_records_are(made: Made) -> None:
    batch, header, records, spans = build(made)
    body = body_of(batch, header)
    assert [header.base_offset + span.offset_delta for span in spans] == [each.offset for each in records]
    assert [span.key for span in spans] == [record.key for record in records]
    assert [span.is_tombstone for span in spans] == [record.value is None for record in records]
    assert b"".join(body[span.start : span.end] for span in spans) == body


@given(BATCHES, st.data(), st.none() | st.integers(0, 2**63 - 1))
def test_a_batch_of_some_of_its_records(made: Made, data: st.DataObject, horizon: int | None) -> None:
    batch, header, records, spans = build(made)
    numbers = data.draw(st.sets(st.integers(0, len(records) - 1), min_size=1))
    kept = [spans[number] for number in sorted(numbers)]
    smaller = with_records(header, body_of(batch, header), kept, delete_horizon=horizon)
    after = parse_header(smaller)
    assert verify_crc(smaller, 0, len(smaller)) and after.length == len(smaller)
    assert list(iter_records(smaller)) == [records[number] for number in sorted(numbers)]
    assert (after.base_offset, after.last_offset) == (header.base_offset, header.last_offset)
    assert (after.base_sequence, after.last_sequence) == (header.base_sequence, header.last_sequence)
    assert after.codec is header.codec
    assert after.has_delete_horizon is (horizon is not None)
    if not header.is_log_append_time:
        assert after.max_timestamp == max(records[number].timestamp for number in numbers)


@given(BATCHES)
def test_an_emptied_batch(made: Made) -> None:
    _, header, _, _ = build(made)
    empty = emptied(header)
    after = parse_header(empty)
    assert verify_crc(empty, 0, len(empty)) and len(empty) == 61
    assert not list(iter_records(empty))
    assert (after.base_offset, after.last_offset) == (header.base_offset, header.last_offset)
    assert (after.producer_id, after.producer_epoch, after.last_sequence) == (5, 1, header.last_sequence)


@pytest.mark.parametrize("count", [0, 1, 7, MAX_DELTA + 1, 2 * MAX_DELTA + 5])
def test_fillers_follow_on_each_other(count: int) -> None:
    expected = 100
    for batch in filler(100, 100 + count):
        header = parse_header(batch)
        assert verify_crc(batch, 0, len(batch)) and header.base_offset == expected
        expected = header.next_offset
    assert expected == 100 + count


@given(BATCHES, st.data())
def test_malformed_records_are_refused(made: Made, data: st.DataObject) -> None:
    batch, header, _, _ = build(made)
    body = bytearray(body_of(batch, header))
    position = data.draw(st.integers(0, len(body) - 1))
    body[position] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(body)))
    for broken in (bytes(body), bytes(body[:cut])):
        try:
            spans = list(iter_spans(broken, header))
        except CorruptBatch:
            continue
        assert len(spans) == header.count
        assert spans[-1].end == len(broken)


def test_every_record_needs_a_key() -> None:
    for keys in ([b"a", None], [None], [b"", b""], [None, *[b"k"] * 8, None, b"k"]):
        batch, header, _, _ = build(
            ([(key, b"v", [], 1) for key in keys], Codec.GZIP, TimestampType.CREATE_TIME)
        )
        if None in keys:
            with pytest.raises(MissingKeys, match="no key") as refused:
                check_keys(batch, header)
            assert refused.value.positions == [i for i, key in enumerate(keys) if key is None]
        else:
            check_keys(batch, header)
