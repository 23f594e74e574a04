"""The envelope of a published message: what the broker knows of its properties."""

import re
from typing import Final

from posthouse.broker.queues.envelope import Envelope
from posthouse.protocols.amqp.codec.tables import Table, value_types
from posthouse.protocols.amqp.codec.types import TYPE_NAMES
from posthouse.protocols.amqp.mapping.changes import REMOVE, set_headers, with_delay_negated
from posthouse.protocols.amqp.mapping.errors import InvalidProperty
from posthouse.protocols.amqp.mapping.properties import (
    NO_PROPERTIES,
    PERSISTENT,
    Flag,
    Properties,
    parse,
    spans,
)
from posthouse.protocols.amqp.mapping.readable import EXCHANGE, PROPERTIES, readable_headers
from posthouse.records.header_section import encode_section

MAX_EXPIRATION_MS: Final = 10 * 365 * 24 * 3600 * 1000

_INTEGER: Final = re.compile(rb"[+-]?[0-9]+")

COPY_KEYS: Final = "CC"
_HIDDEN_KEYS: Final = "BCC"


def envelope_of(exchange: bytes, properties: bytes) -> Envelope:
    """Raises InvalidProperty and MalformedProperties."""
    parsed = parse(properties)
    headers = parsed.headers
    for name in (COPY_KEYS, _HIDDEN_KEYS):
        if name in headers and not isinstance(headers[name], list):
            raise InvalidProperty(_no_array(name, properties))
    more_keys = (*copy_keys(headers), *_keys(headers, _HIDDEN_KEYS))
    if _HIDDEN_KEYS in headers:
        properties = set_headers(properties, {_HIDDEN_KEYS: REMOVE})
        del headers[_HIDDEN_KEYS]
    delay_ms = _delay(headers)
    headers_when_due: bytes | None = None
    if delay_ms:
        served = with_delay_negated(properties)
        headers_when_due = _section(exchange, served, parse(served))
    return Envelope(
        headers=_section(exchange, properties, parsed),
        headers_when_due=headers_when_due,
        attributes=headers,
        expires_in_ms=_expiration(parsed),
        priority=parsed.priority or 0,
        delay_ms=delay_ms,
        more_keys=more_keys,
        persistent=parsed.delivery_mode == PERSISTENT,
    )


def _section(exchange: bytes, properties: bytes, parsed: Properties) -> bytes:
    section: list[tuple[bytes, bytes | None]] = [(EXCHANGE, exchange)]
    if properties != NO_PROPERTIES:
        section.append((PROPERTIES, properties))
        section += readable_headers(parsed)
    return encode_section(section)


def copy_keys(headers: Table) -> tuple[bytes, ...]:
    """Further routing keys that consumers may see."""
    return _keys(headers, COPY_KEYS)


def _keys(headers: Table, name: str) -> tuple[bytes, ...]:
    """Values that are no strings are ignored, as by RabbitMQ."""
    keys = headers.get(name)
    if not isinstance(keys, list):
        return ()
    return tuple(key.encode() for key in keys if isinstance(key, str))


def _no_array(name: str, properties: bytes) -> str:
    kind = value_types(properties, spans(properties)[Flag.HEADERS][0])[name]
    return f'invalid message: {{unacceptable_type_in_header,"{name}",{TYPE_NAMES[kind]}}}'


def _expiration(properties: Properties) -> int | None:
    text = properties.expiration
    if text is None:
        return None
    if text.isdigit() and (expiration := int(text)) <= MAX_EXPIRATION_MS:
        return expiration
    # A sign is allowed, as by RabbitMQ; the error texts are RabbitMQ's, too.
    found = _INTEGER.match(text)
    if found is None:
        wrong = "no_integer"
    elif found.end() < len(text):
        wrong = f'{{leftover_string,"{text[found.end() :].decode(errors="replace")}"}}'
    elif (expiration := int(text)) < 0:
        wrong = f"{{value_negative,{expiration}}}"
    elif expiration > MAX_EXPIRATION_MS:
        wrong = f"{{value_too_large,{expiration}}}"
    else:
        return expiration
    raise InvalidProperty(f"invalid expiration '{text.decode(errors='replace')}': {wrong}")


def _delay(headers: Table) -> int:
    delay = headers.get("x-delay")
    return max(delay, 0) if isinstance(delay, int) and not isinstance(delay, bool) else 0
