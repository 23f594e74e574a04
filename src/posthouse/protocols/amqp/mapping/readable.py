"""Properties and application headers as other protocols see them: text wherever there is a text for it."""

import base64
import json
import math
from decimal import Decimal

from posthouse.broker.queues import record_headers
from posthouse.protocols.amqp.mapping.properties import Properties

EXCHANGE = record_headers.EXCHANGE
PROPERTIES = b"amqp.properties"
DEATHS = record_headers.DEATHS

_OWN_PREFIXES = ("amqp.", "posthouse.")


def readable_headers(properties: Properties) -> list[tuple[bytes, bytes | None]]:
    headers: list[tuple[bytes, bytes | None]] = [
        (name, value)
        for name, value in (
            (b"amqp.content-type", properties.content_type),
            (b"amqp.content-encoding", properties.content_encoding),
            (b"amqp.correlation-id", properties.correlation_id),
            (b"amqp.reply-to", properties.reply_to),
            (b"amqp.message-id", properties.message_id),
            (b"amqp.type", properties.type),
            (b"amqp.app-id", properties.app_id),
            (b"amqp.user-id", properties.user_id),
            (b"amqp.expiration", properties.expiration),
        )
        if value is not None
    ]
    for name, number in ((b"amqp.priority", properties.priority), (b"amqp.timestamp", properties.timestamp)):
        if number is not None:
            headers.append((name, b"%d" % number))
    for header, value in properties.headers.items():
        # Publishers must not set headers of the broker. The property list keeps such a header as it was sent.
        if not header.startswith(_OWN_PREFIXES):
            headers.append((header.encode(), _text(value)))
    return headers


def _text(value: object) -> bytes | None:
    match value:
        case str():
            return value.encode()
        case bytes() | None:
            return value
        case bool():
            return b"true" if value else b"false"
        case dict() | list():
            return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":")).encode()
        case _:
            return str(value).encode()


def _plain(value: object) -> object:
    """For JSON, which knows neither bytes nor decimals nor numbers that are none."""
    match value:
        case dict():
            return {name: _plain(entry) for name, entry in value.items()}
        case list():
            return [_plain(entry) for entry in value]
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal():
            return str(value)
        case float() if not math.isfinite(value):
            return str(value)
        case _:
            return value
