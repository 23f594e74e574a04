"""Header blocks, held to the library's encoder and decoder."""

import pytest
from hpack import Decoder, Encoder, HPACKError
from hypothesis import given
from hypothesis import strategies as st

from posthouse.protocols.grpc.http2.errors import ConnectionFault, ErrorCode
from posthouse.protocols.grpc.http2.field_decoder import FieldDecoder
from posthouse.protocols.grpc.http2.header_blocks import content_type, literal, status
from posthouse.protocols.grpc.http2.huffman import BadHuffman, decode_huffman

names = st.sampled_from([b":path", b"x-mq-date-time", b"cookie", b"a" * 100]) | st.binary(max_size=20)
values = st.sampled_from([b"/", b"", b"x" * 5000]) | st.binary(max_size=60)
blocks = st.lists(st.tuples(names, values), max_size=20)


@given(st.lists(st.tuples(blocks, st.booleans(), st.none() | st.integers(0, 4096)), max_size=8))
def test_what_the_library_encodes(sent: list[tuple[list[tuple[bytes, bytes]], bool, int | None]]) -> None:
    encoder, decoder = Encoder(), FieldDecoder(4096)
    for headers, huffman, size in sent:
        if size is not None:
            encoder.header_table_size = size
        assert decoder.decode(encoder.encode(headers, huffman=huffman)) == headers


def library(decoder: Decoder, block: bytes) -> list[tuple[bytes, bytes]] | None:
    try:
        return [(bytes(name), bytes(value)) for name, value in decoder.decode(block, raw=True)]
    except HPACKError:
        return None


@given(st.lists(st.binary(max_size=40) | blocks.map(lambda each: Encoder().encode(each)), max_size=4))
def test_any_bytes_are_the_same_for_the_library(sent: list[bytes]) -> None:
    ours, theirs = FieldDecoder(4096), Decoder(max_header_list_size=1 << 30)
    for block in sent:
        expected = library(theirs, block)
        try:
            found = ours.decode(block)
        except ConnectionFault as fault:
            assert fault.code == ErrorCode.COMPRESSION_ERROR
            # The library takes any number of updates, and numbers of any length.
            assert expected is None or block[0] & 0xE0 == 0x20 or len(block) > 5
            return
        assert found == expected


@given(st.binary(max_size=200))
def test_texts_in_huffman_code(text: bytes) -> None:
    encoded = Encoder().huffman_coder.encode(text)
    assert decode_huffman(encoded) == text


@pytest.mark.parametrize("data", [b"\xff", b"\xff\xff\xff\xff", b"\x00", b"\x1f\xff", b"\xff\xff\xff\xea"])
def test_texts_that_are_none(data: bytes) -> None:
    with pytest.raises(BadHuffman):
        decode_huffman(data)


@pytest.mark.parametrize(
    "block",
    [
        b"\x80",
        b"\xbe",
        b"\xff",
        b"\xff\x00",
        b"\xff\xff\xff\xff\xff\x0f",
        b"\x40",
        b"\x40\x05a",
        b"\x40\x01a",
        b"\x40\x81\xff\x01a",
        b"\x3f\xe2\x1f",
        b"\x82\x20",
        b"\x20\x20\x20\x82",
        b"\x7f\x00\x01a",
    ],
)
def test_blocks_that_are_none(block: bytes) -> None:
    with pytest.raises(ConnectionFault) as caught:
        FieldDecoder(4096).decode(block)
    assert caught.value.code == ErrorCode.COMPRESSION_ERROR


def test_a_field_that_is_larger_than_the_table_empties_it() -> None:
    decoder = FieldDecoder(100)
    assert decoder.decode(b"\x40\x01a\x01b\xbe") == [(b"a", b"b")] * 2
    assert decoder.decode(b"\x40\x01a\x50" + bytes(80)) == [(b"a", bytes(80))]
    with pytest.raises(ConnectionFault):
        decoder.decode(b"\xbe")


def test_what_is_sent_is_read_by_the_library() -> None:
    block = b"\x88" + status(405) + content_type(b"application/grpc") + literal(b"grpc-message", b"x" * 900)
    assert library(Decoder(), block) == [
        (b":status", b"200"),
        (b":status", b"405"),
        (b"content-type", b"application/grpc"),
        (b"grpc-message", b"x" * 900),
    ]
