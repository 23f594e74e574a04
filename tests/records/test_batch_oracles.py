"""Our batches read by two other implementations, and theirs by ours, with every codec."""

from collections.abc import Iterator
from typing import Any

import cramjam
import kafka.codec
import pytest
from aiokafka.record import default_records as aiokafka_records
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka.record import default_records as kafka_python_records

from posthouse.records.batch import parse_header, stamp_log_append_time, validate_produced
from posthouse.records.builder import BatchBuilder
from posthouse.records.compression import Codec
from posthouse.records.record import Record, iter_records

NOW = 1_700_000_000_000

ORACLES: dict[str, Any] = {
    "kafka-python": kafka_python_records,
    "aiokafka": aiokafka_records,
}


class RawSnappy:
    """Stands in for python-snappy, the block codec that kafka-python wants under its own framing."""

    @staticmethod
    def compress(data: bytes) -> bytes:
        return bytes(cramjam.snappy.compress_raw(data))

    @staticmethod
    def decompress(data: bytes) -> bytes:
        return bytes(cramjam.snappy.decompress_raw(data))


@pytest.fixture(autouse=True)
def kafka_python_with_snappy() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka.codec, "snappy", RawSnappy)
        yield


# The oracles want values that shrink: they drop the codec otherwise. Null header keys do not exist.
payloads = st.none() | st.binary(max_size=60) | st.binary(min_size=1, max_size=10).map(lambda p: p * 5000)
headers = st.lists(st.tuples(st.text(max_size=40), st.none() | st.binary(max_size=100)), max_size=4).map(
    tuple
)
timestamps = st.integers(NOW - 100_000, NOW + 10**12)
records = st.lists(
    st.builds(Record, st.just(0), timestamps, payloads, payloads, headers), min_size=1, max_size=12
).map(lambda found: [record._replace(offset=index) for index, record in enumerate(found)])

oracle_names = pytest.mark.parametrize("oracle", ORACLES.keys())
codecs = pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
examples = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def read_by(oracle: str, batch: bytes | bytearray) -> list[Record]:
    reader = ORACLES[oracle].DefaultRecordBatch(bytes(batch))
    assert reader.validate_crc()
    return [
        Record(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
        for record in reader
    ]


@oracle_names
@codecs
@examples
@given(records=records)
def test_they_read_ours(oracle: str, codec: Codec, records: list[Record]) -> None:
    builder = BatchBuilder(codec)
    for record in records:
        builder.add(record.key, record.value, record.headers, record.timestamp)
    assert read_by(oracle, builder.build()) == records


@oracle_names
@codecs
@examples
@given(records=records, transactional=st.booleans())
def test_we_read_theirs(oracle: str, codec: Codec, records: list[Record], transactional: bool) -> None:
    builder = ORACLES[oracle].DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=int(transactional),
        producer_id=77,
        producer_epoch=3,
        base_sequence=5,
        batch_size=1 << 24,
    )
    filler = Record(len(records), NOW, None, b"filler " * 500, ())
    for record in [*records, filler]:
        builder.append(
            record.offset,
            timestamp=record.timestamp,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
        )
    batch = bytes(builder.build())
    header = validate_produced(batch, max_bytes=len(batch))
    assert list(iter_records(batch)) == [*records, filler]
    assert (header.codec, header.is_transactional) == (codec, transactional)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 5)
    assert header.max_timestamp == max(record.timestamp for record in [*records, filler])


@oracle_names
@codecs
def test_they_agree_on_header_and_log_append_time(oracle: str, codec: Codec) -> None:
    builder = BatchBuilder(codec, producer_id=2**40, producer_epoch=7, base_sequence=2**31 - 1)
    for number in range(3):
        builder.add(b"k", b"v" * 100, timestamp=NOW + number)
    batch = builder.build(2**33)
    stamp_log_append_time(batch, NOW + 50)
    ours, theirs = parse_header(batch), ORACLES[oracle].DefaultRecordBatch(bytes(batch))
    assert theirs.validate_crc()
    for name in ("base_offset", "magic", "crc", "attributes", "last_offset_delta", "next_offset"):
        assert getattr(theirs, name) == getattr(ours, name), name
    for name in ("max_timestamp", "producer_id", "producer_epoch", "base_sequence", "is_transactional"):
        assert getattr(theirs, name) == getattr(ours, name), name
    assert (theirs.first_timestamp, theirs.compression_type) == (ours.base_timestamp, codec)
    assert theirs.timestamp_type == 1
    assert read_by(oracle, batch) == list(iter_records(batch))
