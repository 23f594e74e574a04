"""Messages as CloudEvents 1.0.

A record that is a CloudEvent already, as Kafka's binding writes it (headers `ce_specversion`, `ce_type` …),
keeps its attributes. Another one gets

    id            that of the delivery: the same in every attempt
    source        /topics/NAME
    type          posthouse.message
    time          of the record
    partitionkey  its key, if that is text
"""

import re
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

import msgspec

from posthouse.webhooks.delivery import Delivery

_PREFIX: Final = b"ce_"
_NAME: Final = re.compile(r"[a-z0-9]{1,40}")
_NOT_ATTRIBUTES: Final = frozenset({"data", "data_base64", "datacontenttype"})
_JSON: Final = re.compile(r"[^;]*[/+]json\s*(;.*)?", re.IGNORECASE)
_LONGEST_VALUE: Final = 4096
_REQUIRED: Final = ("id", "source", "type")
_LATEST_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""


def attributes_of(delivery: Delivery) -> dict[str, str]:
    """All but datacontenttype."""
    own = _own(delivery)
    made = {
        "specversion": "1.0",
        "id": delivery.id,
        "source": f"/topics/{quote(delivery.topic)}",
        "type": "posthouse.message",
    }
    if 0 <= delivery.timestamp <= _LATEST_MS:
        made["time"] = _shown(delivery.timestamp)
    if delivery.key is not None and len(delivery.key) <= _LONGEST_VALUE and (key := _text(delivery.key)):
        made["partitionkey"] = key
    return made | own


def structured(delivery: Delivery, attributes: Mapping[str, str], content_type: str | None) -> dict[str, Any]:
    """JSON as it is, text as text, any other bytes in Base64."""
    event: dict[str, Any] = dict(attributes)
    if content_type is not None:
        event["datacontenttype"] = content_type
    if (content_type is None or _JSON.fullmatch(content_type)) and _is_json(delivery.value):
        event["datacontenttype"] = content_type or "application/json"
        event["data"] = msgspec.Raw(delivery.value)
    elif content_type is not None and content_type.startswith("text/") and (text := _text(delivery.value)):
        event["data"] = text
    else:
        event["data_base64"] = b64encode(delivery.value).decode()
    return event


def _own(delivery: Delivery) -> dict[str, str]:
    """The attributes that the record brings, if they are those of a whole CloudEvent."""
    found: dict[str, str] = {}
    for name, value in delivery.headers:
        if name.startswith(_PREFIX) and value is not None and len(value) <= _LONGEST_VALUE:
            attribute, text = name[len(_PREFIX) :].decode("latin-1"), _text(value)
            if text and _NAME.fullmatch(attribute) and attribute not in _NOT_ATTRIBUTES:
                found[attribute] = text
    is_event = found.get("specversion") == "1.0" and all(each in found for each in _REQUIRED)
    return found if is_event else {}


def _text(value: bytes) -> str | None:
    """None for bytes that are no text, and for control characters, which attributes must not have."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None


def _is_json(value: bytes) -> bool:
    try:
        msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _shown(timestamp: int) -> str:
    time = datetime.fromtimestamp(timestamp / 1000, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
