"""Header blocks: the rules of RFC 9113 (8.2, 8.3) for requests, and blocks to send.

Blocks that are sent refer to HPACK's static table only, so their bytes never depend on what was sent before,
and an answer is the same bytes on every connection.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from posthouse.protocols.grpc.http2.errors import ErrorCode, StreamFault
from posthouse.protocols.grpc.http2.field_decoder import ENTRY_BYTES, Field

_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_BAD_VALUE: Final = re.compile(rb"[\r\n]|[ \t]\0|\0[ \t]")
_CONNECTION_SPECIFIC: Final = frozenset(
    {b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"}
)
_MOST_KNOWN_NAMES: Final = 1_000
_LONGEST_KNOWN_NAME: Final = 64

HeaderList = Sequence[Field]


@dataclass(slots=True)
class Request:
    """Not frozen: one for each call, and frozen ones take three times as long to make."""

    method: bytes
    path: bytes
    fields: dict[bytes, bytes]
    """Without pseudo-headers; values of repeated names are joined by commas."""


_known_names: set[bytes] = {b":method", b":scheme", b":path", b":authority"}
"""Names that were found to be good. Of all connections; bounded."""


def check_size(headers: HeaderList, limit: int) -> None:
    """Raises StreamFault."""
    size = len(headers) * ENTRY_BYTES
    for name, value in headers:
        size += len(name) + len(value)
    if size > limit:
        raise StreamFault(ErrorCode.ENHANCE_YOUR_CALM, f"headers of {size} bytes")


def read_request(headers: HeaderList) -> Request:
    """Raises StreamFault if they are malformed. Their size was checked."""
    fields = dict(headers)
    for name in fields:
        if name not in _known_names:
            _check_name(name)
    values = b"\0".join([b"", *fields.values(), b""])
    if len(fields) != len(headers):
        values += b"\0" + b"\0".join(value for _, value in headers) + b"\0"
        fields = _joined(headers)
        is_bad = any(b"\0" in value for _, value in headers)
    else:
        is_bad = values.count(b"\0") != len(fields) + 1
    if is_bad or _BAD_VALUE.search(values):
        raise malformed("a header has a value with a line break, a NUL or blanks around it")
    te = fields.get(b"te")
    if te is not None and te != b"trailers":
        raise malformed("the header te is something else than trailers")
    pseudo = 0
    for name, _ in headers:
        if name[0] != 58:  # a colon
            break
        pseudo += 1
    method, path, scheme = (fields.pop(each, None) for each in (b":method", b":path", b":scheme"))
    if not method or not path or not scheme:
        raise malformed("the method, the path or the scheme is missing")
    if pseudo - 3 != (fields.pop(b":authority", None) is not None):
        raise malformed("a pseudo-header comes after a header")
    return Request(method, path, fields)


def _check_name(name: bytes) -> None:
    if name in _CONNECTION_SPECIFIC:
        raise malformed(f"the header {name.decode()} is of HTTP/1")
    if _NAME.fullmatch(name) is None:
        raise malformed(f"the header name {name[:50]!r} is not allowed")
    if len(_known_names) < _MOST_KNOWN_NAMES and len(name) <= _LONGEST_KNOWN_NAME:
        _known_names.add(name)


def _joined(headers: HeaderList) -> dict[bytes, bytes]:
    fields: dict[bytes, bytes] = {}
    for name, value in headers:
        before = fields.get(name)
        if before is None:
            fields[name] = value
        elif name[0] == 58:
            raise malformed(f"the pseudo-header {name.decode()} comes twice")
        else:
            fields[name] = before + (b"; " if name == b"cookie" else b",") + value
    return fields


def check_trailers(headers: HeaderList) -> None:
    """Raises StreamFault if they are malformed."""
    for name, value in headers:
        if name not in _known_names or name[0] == 58:
            _check_name(name)
        if b"\0" in value or _BAD_VALUE.search(b"\0" + value + b"\0"):
            raise malformed("a trailer has a value with a line break, a NUL or blanks around it")


def malformed(text: str) -> StreamFault:
    return StreamFault(ErrorCode.PROTOCOL_ERROR, text)


# Sending

STATUS_200: Final = b"\x88"
NO_DYNAMIC_TABLE: Final = b"\x20"
"""An update of the table's size to nothing."""


def status(code: int) -> bytes:
    """A status that need not be in the static table."""
    return b"\x08\x03%d" % code


def content_type(value: bytes) -> bytes:
    return b"\x0f\x10" + _integer(len(value), 0x7F) + value


def literal(name: bytes, value: bytes) -> bytes:
    """A header that neither side puts into its table."""
    return b"\0" + _integer(len(name), 0x7F) + name + _integer(len(value), 0x7F) + value


def _integer(value: int, prefix: int) -> bytes:
    if value < prefix:
        return bytes((value,))
    found = bytearray((prefix,))
    value -= prefix
    while value >= 128:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)
