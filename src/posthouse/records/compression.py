"""The four codecs that clients use, with a hard limit on decompressed output.

Declared sizes are never trusted: output grows step by step, so a decompression bomb costs at most the limit,
and a few bytes that declare gigabytes cost nothing.
"""

import zlib
from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import Final, TypeAlias

import lz4.frame
import zstandard
from cramjam import DecompressionError, snappy

from posthouse.model.errors import CorruptBatch, Inflated, InvalidConfig
from posthouse.records.zstd_frames import are_whole_frames

_Data: TypeAlias = bytes | bytearray | memoryview


class Codec(IntEnum):
    """The numbers in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


MAX_OUTPUT: Final = 128 * 1024 * 1024
"""Decompression limit of one batch for a reader that asked for it."""

# Decompression limit in the broker, for batches of any client. Most real batches shrink to a tenth at best. A
# batch whose records fit the first number may be as repetitive as it likes; a batch of 1 MiB, the usual
# maximum, may become 20 MiB.
_ALWAYS_ALLOWED: Final = 16 * 1024 * 1024
_MAX_RATIO: Final = 20

# First output buffer; it doubles up to the second size: small batches allocate little, and large ones never
# much at once.
_FIRST_STEP = 64 * 1024
_LARGEST_STEP = 1024 * 1024

# `unused_data` copies the remaining input, once per gzip member; small slices keep a batch of many tiny
# members from costing the square of its size.
_GZIP_INPUT_STEP = 16 * 1024
_GZIP_WRAPPER = 16 + zlib.MAX_WBITS

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK = 32 * 1024
_UINT32 = Struct(">I")
# Three bytes of a raw block become at most 64, so a block that declares more is invalid.
_SNAPPY_RATIO = 22

_LEVELS = {Codec.GZIP: range(1, 10), Codec.LZ4: range(18), Codec.ZSTD: range(-131072, 23)}
_DEFAULT_LEVEL = {Codec.GZIP: 6, Codec.LZ4: 0, Codec.ZSTD: 3}


def compress(codec: Codec, data: _Data, level: int | None = None) -> bytes:
    """Codecs without levels ignore `level`; raises InvalidConfig for a level outside the codec's range."""
    if level is None:
        level = _DEFAULT_LEVEL.get(codec, 0)
    elif codec in _LEVELS and level not in _LEVELS[codec]:
        raise InvalidConfig(f"{codec.name.lower()} has no compression level {level}")
    return _COMPRESS[codec](data, level)


def decompress(codec: Codec, data: _Data, *, max_output: int) -> bytes:
    """Raises CorruptBatch for invalid bytes, Inflated if the output would exceed `max_output`."""
    return _DECOMPRESS[codec](memoryview(data), max_output)


def output_limit(size: int) -> int:
    """The limit for `size` compressed bytes that the broker decompresses by itself."""
    return min(max(_ALWAYS_ALLOWED, size * _MAX_RATIO), MAX_OUTPUT)


class _Output:
    """Chunks, joined at the end: a growing buffer would be copied repeatedly, also for output beyond the
    limit."""

    __slots__ = ("_max", "_pieces", "_room", "_step")

    def __init__(self, max_output: int) -> None:
        self._pieces: list[bytes] = []
        self._max = self._room = max_output
        self._step = _FIRST_STEP

    @property
    def next_step(self) -> int:
        """Size of the next chunk: one byte more than allowed distinguishes "full" from "too much"."""
        return min(self._step, self._room + 1)

    @property
    def largest_step(self) -> int:
        """The same for codecs that allocate only what they need of it."""
        return min(_LARGEST_STEP, self._room + 1)

    def add(self, chunk: bytes) -> None:
        self._room -= len(chunk)
        if self._room < 0:
            raise _too_large(self._max)
        self._pieces.append(chunk)
        self._step = min(self._step * 2, _LARGEST_STEP)

    def taken(self) -> bytes:
        return b"".join(self._pieces)


def _too_large(max_output: int) -> Inflated:
    return Inflated(f"records take more than {max_output} bytes when decompressed")


def _compress_none(data: _Data, level: int) -> bytes:
    return bytes(data)


def _decompress_none(data: memoryview, max_output: int) -> bytes:
    if len(data) > max_output:
        raise _too_large(max_output)
    return bytes(data)


def _compress_gzip(data: _Data, level: int) -> bytes:
    return zlib.compress(data, level, _GZIP_WRAPPER)


def _decompress_gzip(data: memoryview, max_output: int) -> bytes:
    output = _Output(max_output)
    pos, end = 0, len(data)
    member = zlib.decompressobj(_GZIP_WRAPPER)
    while pos < end:
        if member.eof:
            member = zlib.decompressobj(_GZIP_WRAPPER)
        step = data[pos : pos + _GZIP_INPUT_STEP]
        try:
            _inflate(member, step, output)
        except zlib.error as error:
            raise CorruptBatch(f"gzip: {error}") from None
        pos += len(step) - len(member.unused_data)
    if not member.eof:
        raise CorruptBatch("gzip: stream is cut off")
    return output.taken()


def _inflate(member: "zlib._Decompress", step: memoryview, output: _Output) -> None:
    """Decompress all of `step`. There may be more output after a full chunk, even without input left."""
    left: memoryview | bytes = step
    is_full = True
    while is_full and not member.eof:
        asked = output.largest_step
        chunk = member.decompress(left, asked)
        output.add(chunk)
        left = member.unconsumed_tail
        is_full = len(chunk) == asked


def _compress_snappy(data: _Data, level: int) -> bytes:
    """Xerial framing, which every client reads: 16-byte header, then blocks with a length prefix."""
    view = memoryview(data)
    parts: list[bytes] = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        parts += (_UINT32.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, max_output: int) -> bytes:
    if data[:8] != _XERIAL_MAGIC:
        return _decompress_snappy_block(data, max_output)
    output = _Output(max_output)
    pos, end = 0, len(data)
    while pos < end:
        # Streams may be concatenated; read as a length, the magic is larger than any block.
        if data[pos : pos + 8] == _XERIAL_MAGIC:
            pos += len(_XERIAL_HEADER)
            if pos > end:
                raise CorruptBatch("snappy: header is cut off")
            continue
        start = pos + 4
        if start > end:
            raise CorruptBatch("snappy: block length is cut off")
        pos = start + _UINT32.unpack_from(data, pos)[0]
        if pos > end:
            raise CorruptBatch("snappy: block is cut off")
        output.add(_decompress_snappy_block(data[start:pos], max_output))
    return output.taken()


def _decompress_snappy_block(block: memoryview, max_output: int) -> bytes:
    try:
        size = snappy.decompress_raw_len(block)
        if size > max_output:
            raise _too_large(max_output)
        if size > len(block) * _SNAPPY_RATIO:
            raise CorruptBatch(f"snappy: a block of {len(block)} bytes cannot hold {size}")
        return bytes(snappy.decompress_raw(block))
    except DecompressionError as error:
        raise CorruptBatch(f"snappy: {error}") from None


def _compress_lz4(data: _Data, level: int) -> bytes:
    # The Java client supports neither linked blocks nor, in older versions, the content size.
    out: bytes = lz4.frame.compress(data, compression_level=level, block_linked=False, store_size=False)
    return out


def _decompress_lz4(data: memoryview, max_output: int) -> bytes:
    output = _Output(max_output)
    pos, end, at_end = 0, len(data), False
    context = lz4.frame.create_decompression_context()
    while pos < end or not at_end:
        try:
            chunk, read, at_end = lz4.frame.decompress_chunk(context, data[pos:], max_length=output.next_step)
        except RuntimeError as error:
            raise CorruptBatch(f"lz4: {error}") from None
        if not at_end and not chunk and not read:
            raise CorruptBatch("lz4: frame is cut off")
        output.add(chunk)
        pos += read
    return output.taken()


def _compress_zstd(data: _Data, level: int) -> bytes:
    return zstandard.ZstdCompressor(level=level).compress(data)


def _decompress_zstd(data: memoryview, max_output: int) -> bytes:
    # The reader takes the end of its input for the end of the stream, so a truncated frame has to be detected
    # beforehand.
    if not are_whole_frames(data):
        raise CorruptBatch("zstd: not a whole number of frames")
    output = _Output(max_output)
    with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
        try:
            while chunk := reader.read(output.next_step):
                output.add(chunk)
        except zstandard.ZstdError as error:
            raise CorruptBatch(f"zstd: {error}") from None
    return output.taken()


_COMPRESS: dict[Codec, Callable[[_Data, int], bytes]] = {
    Codec.NONE: _compress_none,
    Codec.GZIP: _compress_gzip,
    Codec.SNAPPY: _compress_snappy,
    Codec.LZ4: _compress_lz4,
    Codec.ZSTD: _compress_zstd,
}
_DECOMPRESS: dict[Codec, Callable[[memoryview, int], bytes]] = {
    Codec.NONE: _decompress_none,
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _decompress_lz4,
    Codec.ZSTD: _decompress_zstd,
}
