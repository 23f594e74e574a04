"""A batch in another codec: the same records under a header that still fits them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posthouse.model.errors import CorruptBatch, RecordTooLarge
from posthouse.model.topic_config import CompressionType, TopicConfig
from posthouse.records.batch import HEADER_SIZE, parse_header, validate_produced
from posthouse.records.builder import BatchBuilder
from posthouse.records.compression import Codec
from posthouse.records.recompression import STORED_CODEC, level_of, recompressed
from posthouse.records.record import body_of, iter_records
from tests.examples import examples

CODECS = st.sampled_from(Codec)
NO_LIMIT = 2**31 - 1
VALUES = st.none() | st.binary(max_size=300)
RECORDS = st.lists(
    st.tuples(
        VALUES,
        VALUES,
        st.lists(st.tuples(st.text(max_size=8), VALUES), max_size=2),
        st.integers(0, 2**40),
    ),
    min_size=1,
    max_size=20,
)


def built(codec: Codec, *values: bytes) -> bytearray:
    builder = BatchBuilder(codec)
    for value in values:
        builder.add(None, value, timestamp=5)
    return builder.build()


@settings(max_examples=examples(100), deadline=None)
@given(records=RECORDS, before=CODECS, after=CODECS, transactional=st.booleans())
def test_records_are_untouched(
    records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]],
    before: Codec,
    after: Codec,
    transactional: bool,
) -> None:
    builder = BatchBuilder(
        before, producer_id=7, producer_epoch=1, base_sequence=3, transactional=transactional
    )
    for record in records:
        builder.add(*record)
    batch = builder.build(base_offset=40)
    old = parse_header(batch)
    out = recompressed(batch, old, after, max_bytes=NO_LIMIT)
    new = validate_produced(out, max_bytes=len(out))
    assert new.codec is after
    assert list(iter_records(out)) == list(iter_records(batch))
    assert body_of(out, new) == body_of(batch, old)
    same = {"length": 0, "crc": 0, "attributes": 0}
    assert new._replace(**same) == old._replace(**same)
    assert new.is_transactional == transactional
    back = recompressed(out, new, before, max_bytes=NO_LIMIT)
    assert back == recompressed(batch, old, before, max_bytes=NO_LIMIT)


@pytest.mark.parametrize("codec", Codec)
def test_the_limit_is_that_of_the_result(codec: Codec) -> None:
    batch = built(Codec.SNAPPY, b"x" * 5000)
    header = parse_header(batch)
    size = len(recompressed(batch, header, codec, max_bytes=NO_LIMIT))
    assert len(recompressed(batch, header, codec, max_bytes=size)) == size
    with pytest.raises(RecordTooLarge):
        recompressed(batch, header, codec, max_bytes=size - 1)


def test_a_bomb_is_not_unpacked() -> None:
    batch = built(Codec.ZSTD, b"\x00" * (130 * 1024 * 1024))
    header = parse_header(batch)
    for codec in (Codec.NONE, Codec.LZ4):
        with pytest.raises(RecordTooLarge):
            recompressed(batch, header, codec, max_bytes=2**20)


def test_what_cannot_be_decompressed_is_corrupt() -> None:
    batch = built(Codec.GZIP, b"x" * 100)
    batch[HEADER_SIZE:] = bytes(len(batch) - HEADER_SIZE)
    with pytest.raises(CorruptBatch):
        recompressed(batch, parse_header(batch), Codec.NONE, max_bytes=NO_LIMIT)


def test_every_setting_but_one_names_a_codec() -> None:
    assert set(CompressionType) - set(STORED_CODEC) == {CompressionType.PRODUCER}
    assert set(STORED_CODEC.values()) == set(Codec)


@pytest.mark.parametrize(
    ("name", "codec", "usual", "quick", "thorough"),
    [
        ("compression.gzip.level", Codec.GZIP, "-1", "1", "9"),
        ("compression.lz4.level", Codec.LZ4, "9", "1", "17"),
        ("compression.zstd.level", Codec.ZSTD, "3", "-100", "22"),
    ],
)
def test_a_topic_says_how_hard_a_codec_tries(
    name: str, codec: Codec, usual: str, quick: str, thorough: str
) -> None:
    values = [b"%d " % (number * number) * 10 for number in range(500)]
    batch = built(Codec.NONE, *values)

    def stored(level: str | None) -> bytearray:
        config = TopicConfig().with_overrides({} if level is None else {name: level})
        return recompressed(
            batch, parse_header(batch), codec, max_bytes=NO_LIMIT, level=level_of(config, codec)
        )

    assert stored(None) == stored(usual)
    assert len(stored(thorough)) < len(stored(quick))
    for level in (quick, thorough):
        assert [record.value for record in iter_records(stored(level))] == values
