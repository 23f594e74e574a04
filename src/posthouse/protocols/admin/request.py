"""One HTTP request, received whole."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, unquote

import msgspec

from posthouse.protocols.admin.problems import Problem

RABBITMQ: Final = "api"
"""Paths of RabbitMQ's management API begin with it."""
_MOST_PARAMETERS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    method: str
    segments: Sequence[str]
    """Of the path, decoded one by one: a virtual host may be "%2F"."""
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Names are in lower case. Of a repeated header the last one counts."""
    body: bytes = b""

    @classmethod
    def parse(
        cls, method: bytes, target: bytes, headers: Sequence[tuple[bytes, bytes]], body: bytes
    ) -> "HttpRequest":
        """Raises Problem."""
        try:
            path, _, query = target.decode("ascii").partition("?")
            segments = [unquote(each, errors="strict") for each in path.split("/")[1:]]
            pairs = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=_MOST_PARAMETERS)
            given = {name.decode("ascii").lower(): value.decode("latin-1") for name, value in headers}
        except ValueError as error:
            raise Problem(400, f"the address of the request cannot be read: {error}") from None
        if not path.startswith("/"):
            raise Problem(400, "the path of a request begins with /")
        parameters = dict(pairs)
        if len(parameters) < len(pairs):
            raise Problem(400, "a parameter is given more than once")
        return cls(
            method=method.decode("ascii"), segments=segments, query=parameters, headers=given, body=body
        )

    @property
    def path(self) -> str:
        return "/" + "/".join(self.segments)

    def json(self) -> object:
        """The body as plain objects; None if there is none. Raises Problem."""
        if not self.body:
            return None
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Problem(400, f"the body is not valid JSON: {error}") from None
