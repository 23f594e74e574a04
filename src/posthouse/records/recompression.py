"""Recompression of a batch, for topics with a codec of their own."""

from collections.abc import Mapping

from crc32c import crc32c

from posthouse.model.errors import RecordTooLarge
from posthouse.model.topic_config import CompressionType, TopicConfig
from posthouse.records.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CRC_AT,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    Readable,
)
from posthouse.records.compression import Codec, compress
from posthouse.records.record import body_of

STORED_CODEC: Mapping[CompressionType, Codec] = {
    CompressionType.UNCOMPRESSED: Codec.NONE,
    CompressionType.GZIP: Codec.GZIP,
    CompressionType.SNAPPY: Codec.SNAPPY,
    CompressionType.LZ4: Codec.LZ4,
    CompressionType.ZSTD: Codec.ZSTD,
}
"""The codec of each setting; 'producer' has none."""


_LZ4_FAST = 9
"""Kafka's default, for which it uses the fast compressor, and not the slow one of that level."""


def level_of(config: TopicConfig, codec: Codec) -> int | None:
    """The topic's compression level for the codec; None for the default."""
    if codec is Codec.GZIP:
        return config.compression_gzip_level if config.compression_gzip_level > 0 else None
    if codec is Codec.LZ4:
        return config.compression_lz4_level if config.compression_lz4_level != _LZ4_FAST else None
    return config.compression_zstd_level if codec is Codec.ZSTD else None


def recompressed(
    batch: Readable, header: BatchHeader, codec: Codec, *, max_bytes: int, level: int | None = None
) -> bytearray:
    """The same records in `codec`; the header's other fields stay valid.

    Raises RecordTooLarge if the result would exceed `max_bytes`, and CorruptBatch if the records cannot be
    decompressed.
    """
    # A batch that is stored uncompressed need not be decompressed beyond its size limit.
    max_output = max_bytes if codec is Codec.NONE else None
    body = compress(codec, body_of(batch, header, max_output=max_output), level)
    size = HEADER_SIZE + len(body)
    if size > max_bytes:
        raise RecordTooLarge(
            f"batch of {size} bytes, stored with codec {codec.name.lower()}, exceeds the limit of {max_bytes}"
        )
    new = header._replace(length=size - LOG_OVERHEAD, attributes=header.attributes & ~CODEC_MASK | codec)
    out = bytearray(HEADER.pack(*new))
    out += body
    out[CRC_AT:ATTRIBUTES_AT] = crc32c(memoryview(out)[ATTRIBUTES_AT:]).to_bytes(4, "big")
    return out
