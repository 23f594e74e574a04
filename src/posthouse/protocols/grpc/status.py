"""How calls end: statuses, and the header blocks that say them."""

from enum import IntEnum
from typing import Final
from urllib.parse import quote

from posthouse.protocols.grpc.http2.header_blocks import STATUS_200, content_type, literal, status


class Status(IntEnum):
    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class GrpcError(Exception):
    """Ends a call with a status."""

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(f"{text} ({status.name})")
        self.status = status
        self.text = text


_LONGEST_TEXT: Final = 1_000
"""Characters. Encoded they may be twelve times as many, which fits into one frame."""
_PLAIN: Final = "".join(chr(each) for each in range(0x20, 0x7F) if each != ord("%"))

RESPONSE: Final = STATUS_200 + content_type(b"application/grpc")
"""The first headers of every response with messages."""
SUCCESS: Final = literal(b"grpc-status", b"0")
_ACCEPTED: Final = literal(b"grpc-accept-encoding", b"identity,gzip")


def trailers(status: Status, text: str) -> bytes:
    if not text:
        return literal(b"grpc-status", b"%d" % status)
    encoded = quote(text[:_LONGEST_TEXT], safe=_PLAIN, errors="replace").encode()
    return literal(b"grpc-status", b"%d" % status) + literal(b"grpc-message", encoded)


def only_trailers(status: Status, text: str) -> bytes:
    """Of a call that ends before its first message."""
    accepted = _ACCEPTED if status is Status.UNIMPLEMENTED else b""
    return RESPONSE + accepted + trailers(status, text)


def http_status(code: int) -> bytes:
    """Of a request that is none of gRPC."""
    return status(code)
