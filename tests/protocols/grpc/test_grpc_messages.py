"""Messages, statuses, timeouts and metadata as bytes."""

import gzip
import zlib

import pytest

from posthouse.protocols.grpc.deadlines import read_timeout
from posthouse.protocols.grpc.messages import MessageReader, decompress_by, encode_message, gunzip
from posthouse.protocols.grpc.metadata import Metadata
from posthouse.protocols.grpc.status import GrpcError, Status, trailers

BOMB = gzip.compress(bytes(100_000_000))


@pytest.mark.parametrize("cut", [1, 2, 5, 7, 1000])
def test_messages_however_they_are_cut(cut: int) -> None:
    compressed = gzip.compress(b"three")
    sent = encode_message(b"one") + encode_message(b"") + b"\x01" + len(compressed).to_bytes(4) + compressed
    reader = MessageReader(1000, gunzip)
    found = []
    for at in range(0, len(sent), cut):
        found += reader.feed(sent[at : at + cut])
    assert found == [(b"one", 8), (b"", 5), (b"three", 5 + len(compressed))]
    assert reader.held == reader.missing == 0


def test_what_is_missing() -> None:
    reader = MessageReader(1000, None)
    reader.feed(b"\0\0\0\x03")
    assert reader.missing == 0
    reader.feed(b"\xe8abc")
    assert (reader.missing, reader.held) == (997, 3)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x02\0\0\0\0", Status.INTERNAL),
        (b"\0\0\0\x03\xe9", Status.RESOURCE_EXHAUSTED),
        (b"\x01\xff\xff\xff\xff", Status.RESOURCE_EXHAUSTED),
        (b"\x01\0\0\0\x03abc", Status.INTERNAL),
        (b"\x01\0\0\0\0", Status.INTERNAL),
        (b"\x01" + len(zlib.compress(b"x")).to_bytes(4) + zlib.compress(b"x"), Status.INTERNAL),
        (b"\x01\0\0\0\x15" + gzip.compress(b"", mtime=0) + b"x", Status.INTERNAL),
    ],
)
def test_messages_that_are_none(sent: bytes, status: Status) -> None:
    with pytest.raises(GrpcError) as caught:
        MessageReader(1000, gunzip).feed(sent)
    assert caught.value.status is status


def test_a_message_that_is_large_once_it_is_decompressed() -> None:
    reader = MessageReader(1_000_000, gunzip)
    with pytest.raises(GrpcError) as caught:
        reader.feed(b"\x01" + len(BOMB).to_bytes(4) + BOMB)
    assert caught.value.status is Status.RESOURCE_EXHAUSTED


def test_compression_that_was_not_announced() -> None:
    with pytest.raises(GrpcError) as caught:
        MessageReader(1000, None).feed(b"\x01\0\0\0\x01x")
    assert caught.value.status is Status.INTERNAL
    assert decompress_by(None) is decompress_by(b"identity") is None
    with pytest.raises(GrpcError) as caught:
        decompress_by(b"snappy")
    assert caught.value.status is Status.UNIMPLEMENTED


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(b"1H", 3600), (b"2M", 120), (b"3S", 3), (b"1500m", 1.5), (b"7u", 7e-6), (b"99999999n", 0.099999999)],
)
def test_timeouts(value: bytes, seconds: float) -> None:
    assert read_timeout(value) == pytest.approx(seconds)


@pytest.mark.parametrize("value", [b"", b"1", b"S", b"-1S", b"1.5S", b"999999999S", b"1s", b"\xb2S"])
def test_timeouts_that_are_none(value: bytes) -> None:
    with pytest.raises(GrpcError):
        read_timeout(value)


def test_texts_are_encoded() -> None:
    assert trailers(Status.ABORTED, "50 % of\n\ud800ü") == (
        b"\x00\x0bgrpc-status\x0210\x00\x0cgrpc-message\x1350 %25 of%0A?%C3%BC"
    )


def test_metadata() -> None:
    metadata = Metadata({b"x": b"\xff", b"a-bin": b"aGk", b"b-bin": b"*"})
    assert metadata.get("x") == "\N{REPLACEMENT CHARACTER}"
    assert metadata.get_binary("a-bin") == b"hi"
    assert metadata.get_binary("b-bin") is None and metadata.get_binary("c-bin") is None
    assert "x" in metadata and "y" not in metadata
    assert list(metadata) == ["x", "a-bin", "b-bin"]
