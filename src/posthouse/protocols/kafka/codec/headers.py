"""Request and response headers, and frames.

    request    size i32 | key i16 | version i16 | correlation i32 | client id nullable string | [tags] | body
    response   size i32 | correlation i32 | [tags] | body

The tags are there in flexible versions. The client id keeps the old string form even then, and the
response to ApiVersions never has tags: its reader does not yet know what the sender can do.
"""

from struct import Struct
from struct import error as StructError

from posthouse.protocols.kafka.codec.primitives import (
    NULL16,
    Buffer,
    Message,
    bad_length,
    bad_text,
    cut_short,
    new,
    skip_tags,
)
from posthouse.protocols.kafka.codec.registry import APIS, find_api

API_VERSIONS_KEY = 18

_REQUEST_START = Struct(">hhi")
_unpack_request = Struct(">hhih").unpack_from
_unpack_i = Struct(">i").unpack_from
_pack_h = Struct(">h").pack
_pack_i = Struct(">i").pack
_pack_frame_v0 = Struct(">ii").pack
_pack_frame_v1 = Struct(">iix").pack

# Every version that can be decoded, and whether it is flexible: one lookup per request.
_FLEXIBLE = {
    (api.key, version): api.is_flexible(version)
    for api in APIS.values()
    for version in range(api.min_version, api.max_version + 1)
}


class RequestHeader(Message):
    __slots__ = ("api_key", "api_version", "client_id", "correlation_id")

    def __init__(self, *, api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id

    @property
    def supported(self) -> bool:
        """Whether the body can be decoded."""
        return (self.api_key, self.api_version) in _FLEXIBLE


def decode_request_header(buf: memoryview) -> tuple[RequestHeader, int]:
    """The header of a frame (without its size) and the position of the body.

    For an unknown API or version only the first eight bytes are valid. The header is returned all the same,
    because ApiVersions has to be answered; `supported` is false and the body is opaque.
    """
    size = len(buf)
    pos = 0
    try:
        api_key, version, correlation_id, length = _unpack_request(buf, 0)
    except StructError:
        return _opaque_header(buf)
    header = new(RequestHeader)
    header.api_key = api_key
    header.api_version = version
    header.correlation_id = correlation_id
    header.client_id = None
    flexible = _FLEXIBLE.get((api_key, version))
    if flexible is None:
        return header, size
    try:
        pos = 10
        if length != -1:
            end = pos + length
            if length < 0 or end > size:
                raise bad_length("RequestHeader.client_id", length, size - pos)
            header.client_id = str(buf[pos:end], "utf-8")
            pos = end
        if flexible:
            tags = buf[pos]
            pos += 1
            if tags:
                pos = skip_tags(buf, pos, tags, "RequestHeader")
    except IndexError:
        raise cut_short("RequestHeader", pos, size) from None
    except UnicodeDecodeError:
        raise bad_text("RequestHeader.client_id") from None
    return header, pos


def _opaque_header(buf: memoryview) -> tuple[RequestHeader, int]:
    """A frame too short for a client id: valid only if its layout is unknown."""
    try:
        api_key, version, correlation_id = _REQUEST_START.unpack_from(buf, 0)
    except StructError:
        raise cut_short("RequestHeader", 0, len(buf)) from None
    header = RequestHeader(
        api_key=api_key, api_version=version, correlation_id=correlation_id, client_id=None
    )
    if header.supported:
        raise cut_short("RequestHeader", 8, len(buf))
    return header, len(buf)


def encode_request_header(api_key: int, version: int, correlation_id: int, client_id: str | None) -> bytes:
    header = _REQUEST_START.pack(api_key, version, correlation_id)
    if client_id is None:
        header += NULL16
    else:
        text = client_id.encode()
        header += _pack_h(len(text)) + text
    return header + b"\0" if find_api(api_key).is_flexible(version) else header


def response_has_tags(api_key: int, version: int) -> bool:
    """Whether the response header is v1 rather than v0."""
    if api_key == API_VERSIONS_KEY:
        return False
    api = APIS.get(api_key)
    return api is not None and api.is_flexible(version)


def encode_response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    header: bytes = _pack_i(correlation_id)
    return header + b"\0" if response_has_tags(api_key, version) else header


def decode_response_header(api_key: int, version: int, buf: memoryview) -> tuple[int, int]:
    """The correlation id of a response frame (without its size) and the position of the body."""
    pos = 0
    try:
        (correlation_id,) = _unpack_i(buf, 0)
        pos = 4
        if response_has_tags(api_key, version):
            tags = buf[4]
            pos = 5
            if tags:
                pos = skip_tags(buf, pos, tags, "ResponseHeader")
    except (StructError, IndexError):
        raise cut_short("ResponseHeader", pos, len(buf)) from None
    return correlation_id, pos


def response_frame(api_key: int, version: int, correlation_id: int, body: list[Buffer]) -> list[Buffer]:
    """The chunks of a response with its size and header in front."""
    size = sum(map(len, body))
    if response_has_tags(api_key, version):
        return [_pack_frame_v1(size + 5, correlation_id), *body]
    return [_pack_frame_v0(size + 4, correlation_id), *body]


def request_frame(
    api_key: int, version: int, correlation_id: int, client_id: str | None, body: list[Buffer]
) -> list[Buffer]:
    """The chunks of a request with its size and header in front."""
    header = encode_request_header(api_key, version, correlation_id, client_id)
    return [_pack_i(len(header) + sum(map(len, body))) + header, *body]
