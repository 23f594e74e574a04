import io

import pytest
from kio.schema.request_header.v1.header import RequestHeader as KioRequestHeaderV1
from kio.schema.request_header.v2.header import RequestHeader as KioRequestHeaderV2
from kio.schema.response_header.v0.header import ResponseHeader as KioResponseHeaderV0
from kio.schema.response_header.v1.header import ResponseHeader as KioResponseHeaderV1
from kio.serial import entity_writer
from kio.static.primitive import i16, i32

from posthouse.protocols.kafka.codec import headers
from posthouse.protocols.kafka.codec.headers import RequestHeader
from posthouse.protocols.kafka.codec.primitives import DecodeError
from tests.protocols.kafka.codec.codec_cases import REQUESTS, RESPONSES, Case


def _kio_request_header(case: Case, client_id: str | None) -> bytes:
    header = case.entity.__header_schema__
    assert header in (KioRequestHeaderV1, KioRequestHeaderV2)
    stream = io.BytesIO()
    entity_writer(header)(
        stream,
        header(
            request_api_key=i16(case.range.key),
            request_api_version=i16(case.version),
            correlation_id=i32(-7),
            client_id=client_id,
        ),
    )
    return stream.getvalue()


@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "é" * 300])
def test_request_headers_agree_with_kio(client_id: str | None) -> None:
    for case in REQUESTS:
        encoded = _kio_request_header(case, client_id)
        header, pos = headers.decode_request_header(memoryview(encoded + b"body"))
        expected = RequestHeader(
            api_key=case.range.key, api_version=case.version, correlation_id=-7, client_id=client_id
        )
        assert header == expected, case
        assert encoded[pos:] == b"", case
        assert header.supported, case
        assert headers.encode_request_header(case.range.key, case.version, -7, client_id) == encoded, case


def test_response_headers_agree_with_kio() -> None:
    for case in RESPONSES:
        header = case.entity.__header_schema__
        assert header in (KioResponseHeaderV0, KioResponseHeaderV1), case
        stream = io.BytesIO()
        entity_writer(header)(stream, header(correlation_id=i32(99)))
        encoded = stream.getvalue()
        key, version = case.range.key, case.version
        assert headers.encode_response_header(key, version, 99) == encoded, case
        assert headers.decode_response_header(key, version, memoryview(encoded)) == (99, len(encoded)), case
        frame = b"".join(headers.response_frame(key, version, 99, [b"bo", b"dy"]))
        assert frame == (len(encoded) + 4).to_bytes(4) + encoded + b"body", case


def test_request_frame_has_its_size_in_front() -> None:
    frame = b"".join(headers.request_frame(18, 4, 1, "cli", [b"body"]))
    header = headers.encode_request_header(18, 4, 1, "cli")
    assert frame == (len(header) + 4).to_bytes(4) + header + b"body"


def test_api_versions_response_never_has_header_tags() -> None:
    assert headers.encode_response_header(18, 4, 5) == b"\0\0\0\5"
    assert headers.encode_response_header(3, 12, 5) == b"\0\0\0\5\0"


@pytest.mark.parametrize(
    "frame",
    [
        b"\0\x12\0\x63\0\0\0\x05\0\x03cli\0what follows is unknown",
        b"\0\x12\0\x63\0\0\0\x05\x7f\xff",
        b"\0\x12\0\x63\0\0\0\x05",
        b"\x7f\xff\0\x63\0\0\0\x05\0\x03\xff\xff\xff",
    ],
)
def test_unknown_api_or_version_still_says_what_it_is(frame: bytes) -> None:
    header, pos = headers.decode_request_header(memoryview(frame))
    assert (header.api_key, header.api_version, header.correlation_id) == (
        int.from_bytes(frame[:2]),
        0x63,
        5,
    )
    assert not header.supported
    assert pos == len(frame)


@pytest.mark.parametrize(
    ("frame", "complaint"),
    [
        (b"", "RequestHeader is cut short"),
        (b"\0\0\0\x09\0\0\0", "RequestHeader is cut short"),
        (b"\0\0\0\x09\0\0\0\x05", "RequestHeader is cut short"),
        (b"\0\0\0\x09\0\0\0\x05\0\x03ab", "client_id declares 3 bytes where 2 remain"),
        (b"\0\0\0\x09\0\0\0\x05\xff\xfe", "client_id declares -2 bytes"),
        (b"\0\0\0\x09\0\0\0\x05\0\x01\xff\0", "client_id is not UTF-8"),
        (b"\0\0\0\x09\0\0\0\x05\xff\xff", "RequestHeader is cut short"),
        (b"\0\0\0\x09\0\0\0\x05\xff\xff\x41", "more than 64 tagged fields"),
        (b"\0\0\0\x09\0\0\0\x05\xff\xff\x01\0\x05ab", "tag 0 declares 5 bytes where 2 remain"),
    ],
)
def test_malformed_request_header(frame: bytes, complaint: str) -> None:
    with pytest.raises(DecodeError, match=complaint):
        headers.decode_request_header(memoryview(frame))


@pytest.mark.parametrize("frame", [b"", b"\0\0\0", b"\0\0\0\1", b"\0\0\0\1\1", b"\0\0\0\1\1\0\x09"])
def test_malformed_response_header(frame: bytes) -> None:
    with pytest.raises(DecodeError):
        headers.decode_response_header(3, 12, memoryview(frame))


def test_unknown_header_tags_are_skipped() -> None:
    frame = b"\0\0\0\x09\0\0\0\x05\xff\xff\x02\0\x01x\x81\x01\x02yzbody"
    header, pos = headers.decode_request_header(memoryview(frame))
    assert header.client_id is None
    assert frame[pos:] == b"body"
