"""Bodies that clients have compressed are stored as they were before: clients of other protocols read them,
too, and a topic may be compressed as a whole.

On the event loop: a body of 1 MiB, which is the usual limit of a topic, takes zlib 3 ms and the others less.
"""

import zlib

from posthouse.model.errors import CorruptBatch, RecordTooLarge
from posthouse.protocols.rocketmq.codec.codes import Compression, MessageFlag
from posthouse.records.compression import Codec, decompress

_COMPRESSED = int(MessageFlag.COMPRESSED)  # a plain number: operators of flags take a microsecond
_COMPRESSION = int(MessageFlag.COMPRESSION)
_SHIFT = 8
_GZIP = 16
"""In the window bits: with the head and tail of gzip."""
_CODECS: dict[int, Codec] = {Compression.LZ4: Codec.LZ4, Compression.ZSTD: Codec.ZSTD}


def plain_body(body: bytes, system_flags: int, limit: int) -> bytes:
    """Raises CorruptBatch, and RecordTooLarge if it would have more than `limit` bytes."""
    if not system_flags & _COMPRESSED:
        return body
    if len(body) > limit:  # zlib may take long to find nothing in it
        raise RecordTooLarge(f"the compressed body has more than {limit} bytes")
    codec = _CODECS.get((system_flags & _COMPRESSION) >> _SHIFT)
    if codec is not None:
        return decompress(codec, body, max_output=limit)
    return _inflated(body, limit, zlib.MAX_WBITS)


def gunzip(body: bytes, limit: int) -> bytes:
    """Raises CorruptBatch, and RecordTooLarge if it would have more than `limit` bytes."""
    if len(body) > limit:
        raise RecordTooLarge(f"the compressed body has more than {limit} bytes")
    return _inflated(body, limit, zlib.MAX_WBITS | _GZIP)


def _inflated(body: bytes, limit: int, window_bits: int) -> bytes:
    inflating = zlib.decompressobj(window_bits)
    try:
        plain = inflating.decompress(body, limit + 1)
    except zlib.error as error:
        raise CorruptBatch(f"the body is not what zlib compresses: {error}") from None
    if len(plain) > limit:
        raise RecordTooLarge(f"the body has more than {limit} bytes when decompressed")
    if not inflating.eof:
        raise CorruptBatch("the compressed body is cut off")
    return plain
