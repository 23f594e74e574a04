"""Records as JSON, for `consume --json` and `produce --json`.

    {"topic": "orders", "partition": 0, "offset": 7, "timestamp": 1769860800000,
     "key": "42", "value": null, "headers": [["trace", "ab12"]]}

Bytes that are UTF-8 are a string; others are {"base64": "…"}. A value of null is a tombstone.
"""

import base64
import binascii
import json
from typing import Any, NamedTuple

from posthouse.client.errors import BadArgument
from posthouse.client.reading import Message

_BASE64 = "base64"
_KNOWN = frozenset({"key", "value", "headers", "partition", "timestamp"})
_OF_THE_PLACE = frozenset({"topic", "offset"})
"""What `consume --json` adds: where the record was. It does not say where the new one is written to."""


class NewRecord(NamedTuple):
    """What one line of the input says."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp: int | None = None


def as_json(topic: str, message: Message) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp,
        "key": _shown(message.key),
        "value": _shown(message.value),
        "headers": [[name, _shown(value)] for name, value in message.headers],
    }


def from_json(line: bytes, number: int) -> NewRecord:
    """Raises BadArgument, with the number of the line."""
    try:
        return _record(json.loads(line))
    except (ValueError, RecursionError) as error:
        reason = "it is not JSON" if isinstance(error, json.JSONDecodeError | UnicodeDecodeError) else error
        raise BadArgument(
            f"line {number} is no record: {reason}; write for example "
            '{"key": "42", "value": "hello", "headers": {"trace": "ab12"}}'
        ) from None


def _record(fields: Any) -> NewRecord:
    if not isinstance(fields, dict):
        raise ValueError("it is no JSON object")
    unknown = sorted(fields.keys() - _KNOWN - _OF_THE_PLACE)
    if unknown:
        raise ValueError(f"there is no field {unknown[0]!r}, only {', '.join(sorted(_KNOWN))}")
    if "value" not in fields:
        raise ValueError("it has no 'value' (null would be a tombstone)")
    return NewRecord(
        key=_bytes(fields.get("key")),
        value=_bytes(fields["value"]),
        headers=tuple(_header(pair) for pair in _pairs(fields.get("headers"))),
        partition=_number(fields, "partition"),
        timestamp=_number(fields, "timestamp"),
    )


def _shown(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {_BASE64: base64.b64encode(data).decode()}


def _bytes(value: Any) -> bytes | None:
    """A string as it is; what is no string as JSON."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {_BASE64}:
        try:
            return base64.b64decode(value[_BASE64], validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise ValueError(f"{value[_BASE64]!r} is not base64") from None
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _pairs(headers: Any) -> list[Any]:
    if headers is None:
        return []
    if isinstance(headers, dict):
        return list(headers.items())
    if isinstance(headers, list):
        return headers
    raise ValueError("its headers are neither an object nor a list of pairs")


def _header(pair: Any) -> tuple[str, bytes | None]:
    match pair:
        case (str() as name, value) | [str() as name, value]:
            return name, _bytes(value)
    raise ValueError(f"{pair!r} is no header; write [name, value]")


def _number(fields: dict[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"its {name} {value!r} is no number of 0 or more")
    return value
