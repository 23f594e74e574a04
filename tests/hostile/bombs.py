"""Batches that are small on the wire and large when they are opened."""

import random
import struct
from functools import cache

import lz4.frame
from crc32c import crc32c

from posthouse.records.batch import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
)
from posthouse.records.builder import encode_record
from posthouse.records.compression import Codec, compress
from posthouse.records.varint import write_varint

MIB = 1024 * 1024
LARGEST_BATCH = MIB
_NOW = 1_700_000_000_000


_PIECE = 4 * MIB


@cache
def bomb(codec: Codec) -> bytes:
    """One record of zeros: as many as a batch can hold, but 1 GiB at most. A thousand to one and more where
    the codec can do that; LZ4 reaches 250, Snappy 21."""
    piece = _squeezed(codec, bytes(_PIECE))
    pieces = min((LARGEST_BATCH - 1000) // len(piece), 1024 * MIB // _PIECE)
    record = encode_record(0, 0, b"key", b"", ())[:-2] + write_varint(pieces * _PIECE)
    length = write_varint(len(record) + pieces * _PIECE + 1)
    return _batch(codec, _squeezed(codec, length + record) + piece * pieces + _squeezed(codec, b"\0"), 1)


@cache
def inflatable(size: int) -> bytes:
    """A message of zeros that the broker has to take: `size` is not too much."""
    record = encode_record(0, 0, b"key", bytes(size), ())
    return _batch(Codec.ZSTD, compress(Codec.ZSTD, write_varint(len(record)) + record), 1)


@cache
def noise() -> bytes:
    """As large as a bomb, and nothing but itself."""
    record = encode_record(0, 0, b"key", random.Random(0).randbytes(LARGEST_BATCH - 1000), ())
    return _batch(Codec.NONE, write_varint(len(record)) + record, 1)


@cache
def swarm(codec: Codec) -> bytes:
    """Tiny records by the hundred thousand: they cost more than their bytes."""
    count = 400_000
    record = encode_record(0, 0, b"k", None, ())
    body = b"".join(
        (write_varint(len(record) - 1 + len(delta)) + record[:2] + delta + record[3:])
        for delta in map(write_varint, range(count))
    )
    return _batch(codec, _squeezed(codec, body), count)


def lie(count: int = 2**31 - 1, codec: Codec = Codec.NONE) -> bytes:
    """A batch that says it has `count` records."""
    return _batch(codec, b"" if codec is Codec.NONE else compress(codec, bytes(100)), count)


def tangled() -> bytes:
    """A record whose length leads back to itself."""
    return _batch(Codec.GZIP, compress(Codec.GZIP, write_varint(-1) + bytes(300_000)), 40_000)


def _squeezed(codec: Codec, body: bytes) -> bytes:
    if codec is Codec.LZ4:
        packed: bytes = lz4.frame.compress(body, block_size=lz4.frame.BLOCKSIZE_MAX4MB, store_size=False)
        return packed
    return compress(codec, body)


def _batch(codec: Codec, body: bytes, count: int) -> bytes:
    size = HEADER_SIZE + len(body)
    assert size <= LARGEST_BATCH, f"{size} bytes"
    numbers = (_NOW, _NOW, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, count)
    batch = bytearray(HEADER.pack(0, size - LOG_OVERHEAD, -1, MAGIC, 0, int(codec), count - 1, *numbers))
    batch += body
    batch[CRC_AT:ATTRIBUTES_AT] = struct.pack(">I", crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
    return bytes(batch)
