"""Codecs: round trips, foreign framings, garbage, and bombs."""

import contextlib
import gzip
import io
import random
import struct
import tracemalloc

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from posthouse.model.errors import CorruptBatch, InvalidConfig, RecordTooLarge
from posthouse.records.compression import Codec, compress, decompress
from posthouse.records.zstd_frames import are_whole_frames
from tests.examples import examples

CODECS = list(Codec)
REAL_CODECS = CODECS[1:]
TEXT = b"the post leaves at noon, rain or shine. " * 4000
NOISE = random.Random(7).randbytes(200_000)
MIB = 1024 * 1024


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", [b"", b"x", TEXT, NOISE], ids=["empty", "byte", "text", "noise"])
def test_round_trip_with_a_cap_of_exactly_the_size(codec: Codec, data: bytes) -> None:
    packed = compress(codec, data)
    assert decompress(codec, packed, max_output=len(data)) == data
    assert decompress(codec, memoryview(bytearray(packed)), max_output=64 * MIB) == data
    assert compress(codec, memoryview(data)) == compress(codec, bytearray(data)) == packed
    if data:
        with pytest.raises(RecordTooLarge):
            decompress(codec, packed, max_output=len(data) - 1)
        with pytest.raises(RecordTooLarge):
            decompress(codec, packed, max_output=0)


@settings(max_examples=examples(60), deadline=None)
@given(codec=st.sampled_from(CODECS), data=st.binary(max_size=5000), repeat=st.integers(1, 40))
def test_round_trip_of_anything(codec: Codec, data: bytes, repeat: int) -> None:
    data *= repeat
    assert decompress(codec, compress(codec, data), max_output=len(data)) == data


@pytest.mark.parametrize(
    ("codec", "low", "high"), [(Codec.GZIP, 1, 9), (Codec.LZ4, 0, 17), (Codec.ZSTD, -5, 22)]
)
def test_levels(codec: Codec, low: int, high: int) -> None:
    for level in (low, high):
        assert decompress(codec, compress(codec, TEXT, level), max_output=len(TEXT)) == TEXT
    with pytest.raises(InvalidConfig):
        compress(codec, TEXT, high + 1)


def test_snappy_is_written_in_xerial_blocks_and_read_raw_too() -> None:
    packed = compress(Codec.SNAPPY, TEXT)
    assert packed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    assert decompress(Codec.SNAPPY, raw, max_output=len(TEXT)) == TEXT
    with pytest.raises(RecordTooLarge):
        decompress(Codec.SNAPPY, raw, max_output=len(TEXT) - 1)


def test_snappy_little_endian_versions_and_concatenated_streams_are_read() -> None:
    block = bytes(cramjam.snappy.compress_raw(b"abc"))
    stream = b"\x82SNAPPY\x00\x01\x00\x00\x00\x01\x00\x00\x00" + struct.pack(">i", len(block)) + block
    assert decompress(Codec.SNAPPY, stream * 3, max_output=9) == b"abc" * 3
    with pytest.raises(RecordTooLarge):
        decompress(Codec.SNAPPY, stream * 3, max_output=8)


def test_gzip_members_may_be_concatenated() -> None:
    packed = gzip.compress(TEXT) + gzip.compress(b"") + gzip.compress(NOISE)
    assert decompress(Codec.GZIP, packed, max_output=MIB) == TEXT + NOISE
    with pytest.raises(RecordTooLarge):
        decompress(Codec.GZIP, packed, max_output=len(TEXT) + len(NOISE) - 1)


@pytest.mark.timeout(10)
def test_very_many_gzip_members_do_not_cost_the_square() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"a") * 40_000, max_output=MIB) == b"a" * 40_000


def test_zstd_without_content_size_in_several_frames_with_checksum_and_skippable() -> None:
    compressor = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True)
    plain = compressor.compress(TEXT)
    assert zstandard.get_frame_parameters(plain).content_size == zstandard.CONTENTSIZE_UNKNOWN
    skippable = struct.pack("<II", 0x184D2A53, 5) + b"hello"
    streamed = io.BytesIO()
    with zstandard.ZstdCompressor(level=19).stream_writer(streamed, closefd=False) as writer:
        for start in range(0, len(NOISE), 9999):
            writer.write(NOISE[start : start + 9999])
            writer.flush()
    packed = plain + skippable + streamed.getvalue()
    assert decompress(Codec.ZSTD, packed, max_output=MIB) == TEXT + NOISE
    with pytest.raises(CorruptBatch):
        decompress(Codec.ZSTD, packed + b"tail", max_output=MIB)


@settings(max_examples=examples(60), deadline=None)
@given(
    data=st.binary(max_size=300),
    repeat=st.sampled_from([1, 7, 1000]),
    size=st.booleans(),
    checksum=st.booleans(),
    level=st.sampled_from([-3, 1, 3, 19]),
)
def test_the_frame_walk_agrees_with_the_library(
    data: bytes, repeat: int, size: bool, checksum: bool, level: int
) -> None:
    compressor = zstandard.ZstdCompressor(level=level, write_content_size=size, write_checksum=checksum)
    packed = memoryview(compressor.compress(data * repeat))
    assert are_whole_frames(packed)
    assert not any(are_whole_frames(packed[:cut]) for cut in range(len(packed)))
    assert not are_whole_frames(memoryview(bytes(packed) + b"\0"))


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("stored_size", [True, False])
@pytest.mark.parametrize("checksums", [True, False])
def test_lz4_frames_of_every_kind(linked: bool, stored_size: bool, checksums: bool) -> None:
    packed = lz4.frame.compress(
        TEXT + NOISE,
        block_linked=linked,
        store_size=stored_size,
        content_checksum=checksums,
        block_checksum=checksums,
    )
    assert decompress(Codec.LZ4, packed * 2, max_output=MIB) == (TEXT + NOISE) * 2


def test_lz4_is_written_with_independent_blocks_and_no_content_size() -> None:
    info = lz4.frame.get_frame_info(compress(Codec.LZ4, TEXT))
    assert not info["block_linked"] and info["content_size"] == 0


@pytest.mark.parametrize("codec", REAL_CODECS)
@pytest.mark.parametrize("data", [b"", b"a", TEXT[:3000]], ids=["empty", "byte", "text"])
def test_a_stream_cut_anywhere_is_corrupt(codec: Codec, data: bytes) -> None:
    packed = compress(codec, data)
    for size in range(len(packed)):
        if codec is Codec.SNAPPY and size == 16:
            continue  # a bare header is a complete, empty stream
        with pytest.raises(CorruptBatch):
            decompress(codec, packed[:size], max_output=MIB)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_bytes_after_the_stream_are_corrupt(codec: Codec) -> None:
    with pytest.raises(CorruptBatch):
        decompress(codec, compress(codec, TEXT) + b"\1\2\3", max_output=MIB)


@settings(max_examples=examples(300), deadline=None)
@given(codec=st.sampled_from(REAL_CODECS), data=st.binary(max_size=300))
def test_garbage_raises_domain_errors_only(codec: Codec, data: bytes) -> None:
    with contextlib.suppress(CorruptBatch, RecordTooLarge):
        assert len(decompress(codec, data, max_output=1000)) <= 1000


@settings(max_examples=examples(400), deadline=None)
@given(
    codec=st.sampled_from(REAL_CODECS),
    edits=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_damaged_streams_raise_domain_errors_only(codec: Codec, edits: list[tuple[int, int]]) -> None:
    packed = bytearray(compress(codec, TEXT[:5000]))
    for at, byte in edits:
        packed[at % len(packed)] = byte
    with contextlib.suppress(CorruptBatch, RecordTooLarge):
        assert len(decompress(codec, packed, max_output=6000)) <= 6000


def zstd_rle_bomb(blocks: int) -> bytes:
    """Frame without content size whose 4-byte blocks each stand for 128 KiB: 32,000 to 1."""
    block = struct.pack("<I", 128 * 1024 << 3 | 1 << 1)[:3] + b"\0"
    last = struct.pack("<I", 128 * 1024 << 3 | 1 << 1 | 1)[:3] + b"\0"
    return struct.pack("<I", 0xFD2FB528) + b"\x00\x58" + block * (blocks - 1) + last


ZEROS = bytes(64 * MIB)
BOMBS = {
    "gzip": (Codec.GZIP, compress(Codec.GZIP, ZEROS)),
    "gzip members": (Codec.GZIP, compress(Codec.GZIP, ZEROS[: MIB // 2]) * 128),
    "lz4": (Codec.LZ4, lz4.frame.compress(ZEROS, block_size=lz4.frame.BLOCKSIZE_MAX4MB)),
    "zstd": (Codec.ZSTD, compress(Codec.ZSTD, ZEROS)),
    "zstd without size": (Codec.ZSTD, zstd_rle_bomb(512)),
    "snappy raw": (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(ZEROS))),
    "snappy xerial": (Codec.SNAPPY, compress(Codec.SNAPPY, ZEROS)),
    "snappy that promises 4 GiB": (Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\0" * 100),
}
del ZEROS


@pytest.mark.parametrize("cap", [1000, MIB])
@pytest.mark.parametrize(("codec", "bomb"), BOMBS.values(), ids=BOMBS.keys())
def test_a_bomb_costs_no_more_than_the_cap(codec: Codec, bomb: bytes, cap: int) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(RecordTooLarge):
            decompress(codec, bomb, max_output=cap)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * cap + 256 * 1024


def test_the_bombs_are_bombs() -> None:
    for name, (codec, bomb) in BOMBS.items():
        if codec is not Codec.SNAPPY:  # its format cannot exceed about 21 to 1
            assert 64 * MIB // len(bomb) >= 200, name
    assert len(decompress(Codec.ZSTD, zstd_rle_bomb(512), max_output=64 * MIB)) == 64 * MIB
