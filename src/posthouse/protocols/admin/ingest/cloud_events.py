"""CloudEvents 1.0 as records: in HTTP's binary, structured and batched mode, and in the log in Kafka's binary
mode, whichever they came in. So Kafka consumers see what other producers of CloudEvents write.

    record header ce_NAME        each attribute, the extensions among them, as text
    record header content-type   the attribute datacontenttype
    record key                   the extension partitionkey
    record value                 the data; null if the event has none
"""

import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import Meta

from posthouse.protocols.admin.ingest.sent_records import MOST_RECORDS, SentRecord
from posthouse.protocols.admin.problems import Problem

_VERSION: Final = "1.0"
_REQUIRED: Final = ("id", "source", "specversion", "type")
_CONTENT_TYPE: Final = "datacontenttype"
_KEY: Final = "partitionkey"
_HTTP_PREFIX: Final = "ce-"
_KAFKA_PREFIX: Final = "ce_"
_NAME: Final = re.compile(r"[a-z0-9]+\Z")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)\Z", re.ASCII)
_JSON: Final = "application/json"
_INT32: Final = range(-(1 << 31), 1 << 31)
_Fields = dict[str, msgspec.Raw]
_Batch = Annotated[list[_Fields], Meta(max_length=MOST_RECORDS)]

_TEXT: Final = {"type": "string", "minLength": 1}
SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "description": "A CloudEvent 1.0 in the JSON format.",
    "properties": {
        "id": _TEXT,
        "source": _TEXT,
        "specversion": {"const": _VERSION},
        "type": _TEXT,
        _CONTENT_TYPE: _TEXT,
        "dataschema": _TEXT,
        "subject": _TEXT,
        "time": {"type": "string", "format": "date-time"},
        "data": {},
        "data_base64": {"type": "string"},
    },
    "required": list(_REQUIRED),
    "propertyNames": {"pattern": "^([a-z0-9]+|data_base64)$"},
    "additionalProperties": {"type": ["string", "boolean", "integer", "null"]},
}
BATCH_SCHEMA: Final[dict[str, Any]] = {
    "type": "array",
    "items": SCHEMA,
    "minItems": 1,
    "maxItems": MOST_RECORDS,
}


def is_binary_event(headers: Mapping[str, str]) -> bool:
    return f"{_HTTP_PREFIX}specversion" in headers


def record_of_binary(headers: Mapping[str, str], body: bytes) -> SentRecord:
    """Raises Problem."""
    attributes: dict[str, str] = {}
    for name, value in headers.items():
        if name.startswith(_HTTP_PREFIX):
            attributes[name.removeprefix(_HTTP_PREFIX)] = _header_value(name, value)
    if _CONTENT_TYPE in attributes:
        raise Problem(400, "datacontenttype is the header content-type, and not ce-datacontenttype")
    if content_type := headers.get("content-type"):
        attributes[_CONTENT_TYPE] = content_type
    return _record(attributes, body or None, "the event")


def record_of_structured(body: bytes) -> SentRecord:
    """Raises Problem."""
    return _event(_decoded(body, _Fields), "the event")


def records_of_batch(body: bytes) -> Sequence[SentRecord]:
    """Raises Problem."""
    events = _decoded(body, _Batch)
    if not events:
        raise Problem(400, "the batch has no events")
    return [_event(each, f"event {number}") for number, each in enumerate(events)]


def _decoded(body: bytes, wanted: Any) -> Any:
    try:
        # The fields are decoded later: what is no UTF-8 in them would be found only then.
        return msgspec.json.decode(body.decode(), type=wanted)
    except msgspec.ValidationError as error:
        raise Problem(400, f"the body is no CloudEvent in JSON: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(400, f"the body is not valid JSON: {error}") from None


def _header_value(name: str, value: str) -> str:
    """Bytes outside of printable ASCII are percent-encoded."""
    try:
        return unquote_to_bytes(value.encode("latin-1")).decode()
    except UnicodeDecodeError:
        raise Problem(400, f"the header {name} is not UTF-8, percent-encoded") from None


def _event(fields: _Fields, what: str) -> SentRecord:
    """Of the JSON format."""
    attributes: dict[str, str] = {}
    for name, raw in fields.items():
        if name not in ("data", "data_base64"):
            value = _attribute(_value(raw, name, what), name, what)
            if value is not None:
                attributes[name] = value
    if "data" in fields and "data_base64" in fields:
        raise Problem(400, f"{what} has data and data_base64; send one of them")
    data: bytes | None = None
    if "data_base64" in fields:
        data = _of_base64(_value(fields["data_base64"], "data_base64", what), what)
    elif "data" in fields:
        data = _of_json(fields["data"], attributes.setdefault(_CONTENT_TYPE, _JSON), what)
    return _record(attributes, data, what)


def _value(raw: msgspec.Raw, name: str, what: str) -> object:
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError as error:  # such as a number that is too large
        raise Problem(400, f"{what}: {name[:100]!r} cannot be read: {error}") from None


def _attribute(value: object, name: str, what: str) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value in _INT32:
        return str(value)
    if value is None or isinstance(value, str):
        return value
    raise Problem(400, f"{what}: {name[:100]!r} must be a text, true, false or a whole number of 32 bits")


def _of_base64(value: object, what: str) -> bytes:
    try:
        if isinstance(value, str):
            return b64decode(value, validate=True)
    except (Base64Error, ValueError):
        pass  # told below
    raise Problem(400, f"{what}: data_base64 is not valid base64")


def _of_json(raw: msgspec.Raw, content_type: str, what: str) -> bytes:
    """A text whose type is not JSON is the data itself."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == _JSON or kind.endswith(("+json", "/json")):
        return bytes(raw)
    value = _value(raw, "data", what)
    return value.encode() if isinstance(value, str) else bytes(raw)


def _record(attributes: dict[str, str], data: bytes | None, what: str) -> SentRecord:
    for name in _REQUIRED:
        if not attributes.get(name):
            raise Problem(400, f"{what} has no {name}: a CloudEvent needs {', '.join(_REQUIRED)}")
    if attributes["specversion"] != _VERSION:
        found = attributes["specversion"][:20]
        raise Problem(400, f"{what} is of version {found!r} of CloudEvents; this broker takes {_VERSION}")
    if wrong := next((name for name in attributes if not _NAME.match(name)), None):
        raise Problem(400, f"{what}: {wrong[:100]!r} is no name of an attribute; use a-z and 0-9")
    if "time" in attributes and not _TIME.match(attributes["time"]):
        raise Problem(400, f"{what}: the time {attributes['time'][:50]!r} is not as in 2026-01-31T12:00:00Z")
    key = attributes.get(_KEY)
    headers: list[tuple[str, bytes | None]] = []
    for name, value in attributes.items():
        kafka_name = "content-type" if name == _CONTENT_TYPE else f"{_KAFKA_PREFIX}{name}"
        headers.append((kafka_name, value.encode()))
    return SentRecord(key=None if key is None else key.encode(), value=data, headers=tuple(headers))
