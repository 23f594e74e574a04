"""Record batches: headers, records read in five ways that must agree, and the codecs."""

from collections.abc import Iterator
from contextlib import suppress
from struct import Struct

import lz4.frame
import zstandard
from cramjam import snappy
from crc32c import crc32c

from posthouse.model.errors import CorruptBatch, PosthouseError, RecordTooLarge, UnsupportedFormat
from posthouse.model.ids import PartitionId, TopicId
from posthouse.model.topic_config import TimestampType
from posthouse.records import batch as b
from posthouse.records import columns, columns_pure
from posthouse.records.arrow_layout import BinaryColumn
from posthouse.records.builder import BatchBuilder
from posthouse.records.columns import ColumnBuffers, Kernel, Wanted
from posthouse.records.compression import Codec, compress, decompress
from posthouse.records.control import build_marker, is_commit
from posthouse.records.header_section import decode_section, encode_section
from posthouse.records.raw import iter_raw
from posthouse.records.recompression import recompressed
from posthouse.records.record import Record, body_of, iter_records
from posthouse.records.references import Reference, build_references, iter_references
from posthouse.records.spans import check_keys, emptied, iter_spans, with_records
from tests.fuzz.target import Target

_NOW = 1_700_000_000_000
_MAX_OUTPUT = 256 * 1024
_LENGTH = Struct(">i")
_REFUSED = (CorruptBatch, RecordTooLarge, UnsupportedFormat)
_EVERYTHING = Wanted.KEY | Wanted.VALUE | Wanted.OFFSET | Wanted.TIMESTAMP | Wanted.HEADERS


def produced(data: bytes) -> None:
    """What a producer sends, with a checksum that is right: nearly nothing else is looked at without it."""
    batch = bytearray(data)
    if len(batch) >= b.HEADER_SIZE:
        _LENGTH.pack_into(batch, b.LENGTH_AT, len(batch) - b.LOG_OVERHEAD)
        batch[b.CRC_AT : b.ATTRIBUTES_AT] = crc32c(memoryview(batch)[b.ATTRIBUTES_AT :]).to_bytes(4, "big")
    try:
        header = b.validate_produced(batch, max_bytes=100_000)
    except PosthouseError:
        return
    assert header.count == header.last_offset_delta + 1
    for codec in Codec:
        with suppress(*_REFUSED):
            again = recompressed(batch, header, codec, max_bytes=100_000)
            assert b.verify_crc(again, 0, len(again))
    with suppress(PosthouseError):
        check_keys(batch, header)
    b.stamp_log_append_time(batch, _NOW)
    assert b.verify_crc(batch, 0, len(batch))


def batch(data: bytes) -> None:
    """Records of a batch that is in the log, whoever wrote it: all readers agree, or none can read it."""
    for _ in _headers(data):
        pass
    try:
        header = b.parse_header(data)
        body = body_of(data, header, max_output=_MAX_OUTPUT)
    except _REFUSED:
        return
    assert len(body) <= max(_MAX_OUTPUT, len(data))
    records = _records(data)
    with suppress(CorruptBatch):
        spans = list(iter_spans(body, header))
        assert records is None or [span.offset_delta + header.base_offset for span in spans] == [
            record.offset for record in records
        ]
        if spans and records is not None:
            _check_rewritten(header, body, records)
    raw = None
    with suppress(CorruptBatch):
        raw = list(iter_raw(body, header, header.base_offset, header.next_offset))
    if records is not None:
        assert raw is not None
        assert [(each.offset, each.key, each.value) for each in raw] == [
            (record.offset, record.key, record.value or b"") for record in records
        ]
    pure, compiled = _columns(data, header, columns_pure), _columns(data, header, columns.KERNEL)
    assert pure == compiled
    if abs(header.base_offset) < 1 << 62:
        assert (records is None) == (pure is None)
    with suppress(CorruptBatch):
        is_commit(data)
    with suppress(CorruptBatch):
        list(iter_references(data, header))


def _headers(data: bytes) -> Iterator[tuple[int, b.BatchHeader]]:
    with suppress(CorruptBatch, UnsupportedFormat):
        yield from b.iter_headers(data)


def _records(data: bytes) -> list[Record] | None:
    try:
        return list(iter_records(data, max_output=_MAX_OUTPUT))
    except CorruptBatch:
        return None


def _check_rewritten(header: b.BatchHeader, body: bytes, records: list[Record]) -> None:
    """What compaction makes of a batch without its first record."""
    kept = list(iter_spans(body, header))[1:]
    if not kept:
        assert b.parse_header(emptied(header)).count == 0
        return
    if header.is_log_append_time or min(record.timestamp for record in records) >= -(1 << 63):
        again = with_records(header, body, kept)
        assert list(iter_records(again, max_output=_MAX_OUTPUT)) == records[1:]


def _columns(data: bytes, header: b.BatchHeader, kernel: Kernel) -> object:
    buffers = ColumnBuffers(_EVERYTHING, kernel)
    try:
        buffers.append(data, header, max_output=_MAX_OUTPUT)
    except CorruptBatch:
        assert buffers.rows == 0
        return None
    taken = buffers.take()
    return (
        taken.rows,
        [_column(column) for column in (taken.key, taken.value)],
        bytes(taken.offsets or b""),
        bytes(taken.timestamps or b""),
        None if taken.headers is None else bytes(taken.headers.offsets),
        None if taken.headers is None else [_column(c) for c in (taken.headers.keys, taken.headers.values)],
    )


def _column(column: BinaryColumn | None) -> object:
    if column is None:
        return None
    validity = None if column.validity is None else bytes(column.validity)
    return bytes(column.offsets), bytes(column.data), validity


def _batches() -> Iterator[bytes]:
    headers = (("h", b"1"), ("trace", None), ("é", b""))
    for codec in Codec:
        for builder in (
            BatchBuilder(codec=codec),
            BatchBuilder(codec=codec, producer_id=9, producer_epoch=1, base_sequence=5, transactional=True),
            BatchBuilder(codec=codec, timestamp_type=TimestampType.LOG_APPEND_TIME),
        ):
            builder.add(b"key", b"value", headers, _NOW)
            builder.add(None, b"x" * 200, (), _NOW + 5000)
            builder.add(b"key", None, (), _NOW - 3)
            yield bytes(builder.build())
    single = BatchBuilder()
    single.add(b"k", b"v", (), _NOW)
    yield bytes(single.build())
    yield bytes(build_marker(5, 0, commit=True, timestamp=_NOW))
    partition = PartitionId(TopicId(bytes(16)), 3)
    yield bytes(build_references([Reference(partition, 10, 5, 0, 500), Reference(partition, 90, 1, _NOW, 7)]))


def codec(data: bytes) -> None:
    """The first byte says which. Nothing comes out that is larger than allowed."""
    if not data:
        return
    which, packed = Codec(1 + data[0] % 4), data[1:]
    with suppress(CorruptBatch, RecordTooLarge):
        assert len(decompress(which, packed, max_output=_MAX_OUTPUT)) <= _MAX_OUTPUT
    assert decompress(which, compress(which, packed), max_output=_MAX_OUTPUT) == packed


def _packed() -> Iterator[bytes]:
    text = b"some text that repeats, " * 20
    for which in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        number = bytes([which - 1])
        yield number + compress(which, b"")
        yield number + compress(which, text)
        yield number + compress(which, bytes(50_000))
        yield number + compress(which, text) * 2
    yield b"\x01" + bytes(snappy.compress_raw(text))
    yield b"\x03" + zstandard.ZstdCompressor(write_checksum=True, write_content_size=False).compress(text)
    yield b"\x02" + lz4.frame.compress(text, content_checksum=True, block_checksum=True, store_size=True)


def section(data: bytes) -> None:
    with suppress(CorruptBatch):
        headers = decode_section(data)
        assert decode_section(encode_section(headers)) == headers
        assert decode_section(data, at_most=1) == headers[:1]


def _sections() -> Iterator[bytes]:
    yield encode_section([])
    yield encode_section([(b"name", b"value"), (b"", None), (b"long", bytes(100))])


TARGETS = (
    Target(name="produced-batch", run=produced, seeds=_batches),
    Target(name="stored-batch", run=batch, seeds=_batches),
    Target(
        name="compression",
        run=codec,
        seeds=_packed,
        dictionary=(
            b"\x28\xb5\x2f\xfd",
            b"\x53\x2a\x4d\x18",
            b"\x1f\x8b\x08",
            b"\x04\x22\x4d\x18",
            b"\x82SNAPPY\x00",
        ),
    ),
    Target(name="header-section", run=section, seeds=_sections, longest=1000),
)
