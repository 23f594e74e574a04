"""What a request is answered with."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import msgspec

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
EVENT_STREAM = "text/event-stream"

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    status: int = 200
    body: bytes | AsyncIterator[bytes] = b""
    """An iterator is sent chunk by chunk, each when the client has taken enough of those before."""
    is_endless: bool = False
    """The iterator has no end of its own: it is cut when the connection is to finish."""
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


NO_CONTENT = Response(status=204, content_type="")


def json_response(value: object, *, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> Response:
    return Response(status=status, body=_encode(value), headers=headers)
