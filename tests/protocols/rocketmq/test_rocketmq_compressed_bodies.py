"""See test_remoting_send for damaged bodies and bombs."""

import zlib

import pytest

from posthouse.model.errors import CorruptBatch, RecordTooLarge
from posthouse.protocols.rocketmq.compressed_bodies import plain_body
from posthouse.records.compression import Codec, compress

BODY = b"hello " * 100
ZLIB, LZ4, ZSTD = 1 | 3 << 8, 1 | 1 << 8, 1 | 2 << 8
COMPRESSED = {
    1: zlib.compress(BODY),
    ZLIB: zlib.compress(BODY),
    LZ4: compress(Codec.LZ4, BODY),
    ZSTD: compress(Codec.ZSTD, BODY),
}


def test_bodies_that_are_not_compressed() -> None:
    for flags in (0, 2, 3 << 8, -2):
        assert plain_body(BODY, flags, 10) is BODY


@pytest.mark.parametrize("flags", COMPRESSED)
def test_up_to_the_limit(flags: int) -> None:
    body = COMPRESSED[flags]
    assert plain_body(body, flags, len(BODY)) == BODY
    assert plain_body(body, flags | 1 << 40, len(BODY)) == BODY
    with pytest.raises(RecordTooLarge):
        plain_body(body, flags, len(BODY) - 1)


@pytest.mark.parametrize("flags", COMPRESSED)
def test_damage(flags: int) -> None:
    body = COMPRESSED[flags]
    for damaged in (body[:-1], body[:5], b"", b"hello", b"\xff" * 50):
        with pytest.raises(CorruptBatch):
            plain_body(damaged, flags, 10_000)


def test_a_codec_that_nobody_has_is_zlib() -> None:
    assert plain_body(zlib.compress(BODY), 1 | 7 << 8, 10_000) == BODY


def test_input_is_limited_too() -> None:
    """Blocks of zlib without content."""
    with pytest.raises(RecordTooLarge, match="the compressed body"):
        plain_body(b"\x78\x9c" + b"\0\0\0\xff\xff" * 1000, ZLIB, 4000)
