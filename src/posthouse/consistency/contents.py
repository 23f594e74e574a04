"""Values and headers of messages, as applications give them."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from posthouse.consistency.errors import BadMessage

LARGEST: Final = 16 * 1024 * 1024
"""Bytes of a value: more than any topic takes that nobody has asked for that."""

Content: TypeAlias = bytes | str | Mapping[str, Any] | list[Any] | None
"""Text is stored in UTF-8, mappings and lists as JSON. None is a tombstone: it deletes its key from a
compacted topic."""
Headers: TypeAlias = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]


def encoded(value: Content) -> bytes | None:
    """Raises BadMessage."""
    if value is None or isinstance(value, bytes):
        data = value
    elif isinstance(value, str):
        data = value.encode()
    else:
        try:
            data = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise BadMessage(f"the value is no JSON: {error}; encode it before") from None
    if data is not None and len(data) > LARGEST:
        raise BadMessage(f"the value has {len(data)} bytes: {LARGEST} are possible")
    return data


def checked_headers(headers: Headers) -> list[tuple[str, bytes | str | None]]:
    """Raises BadMessage."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [(_name(name), _value(value)) for name, value in pairs]


def encoded_headers(headers: Headers) -> list[tuple[str, bytes | None]]:
    """Raises BadMessage."""
    return [
        (name, value.encode() if isinstance(value, str) else value)
        for name, value in checked_headers(headers)
    ]


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise BadMessage(f"the name of a header is text, not {name!r}")
    return name


def _value(value: object) -> bytes | str | None:
    if value is None or isinstance(value, str | bytes):
        return value
    raise BadMessage(f"the value of a header is bytes, text or None, not {value!r}; encode it before")
