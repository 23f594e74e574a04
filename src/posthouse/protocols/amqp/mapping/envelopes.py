"""What the broker has to know of a published message, out of its properties."""

from typing import Final

from posthouse.broker.queues.envelope import Envelope
from posthouse.protocols.amqp.codec.tables import Table
from posthouse.protocols.amqp.mapping.changes import REMOVE, set_headers, with_delay_negated
from posthouse.protocols.amqp.mapping.errors import InvalidProperty
from posthouse.protocols.amqp.mapping.properties import NO_PROPERTIES, PERSISTENT, Properties, parse
from posthouse.protocols.amqp.mapping.readable import EXCHANGE, PROPERTIES, readable_headers
from posthouse.records.header_section import encode_section

MAX_CACHED: Final = 4096
LONGEST_CACHED: Final = 512
MAX_EXPIRATION_MS: Final = 10 * 365 * 24 * 3600 * 1000

COPY_KEYS: Final = "CC"
_HIDDEN_KEYS: Final = "BCC"


class Envelopes:
    """By exchange and properties as they arrived; most messages repeat those of the one before.

    Long properties are not kept: they hold ids and texts that do not come again.
    """

    def __init__(self) -> None:
        self._cache: dict[tuple[bytes, bytes], Envelope] = {}

    def of(self, exchange: bytes, properties: bytes) -> Envelope:
        """Raises InvalidProperty and MalformedProperties."""
        key = (exchange, properties)
        envelope = self._cache.get(key)
        if envelope is None:
            envelope = envelope_of(exchange, properties)
            if len(properties) <= LONGEST_CACHED:
                if len(self._cache) >= MAX_CACHED:
                    self._cache.clear()
                self._cache[key] = envelope
        return envelope


def envelope_of(exchange: bytes, properties: bytes) -> Envelope:
    parsed = parse(properties)
    headers = parsed.headers
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
    if name not in headers:
        return ()
    keys = headers[name]
    if not isinstance(keys, list) or not all(isinstance(key, str | bytes) for key in keys):
        raise InvalidProperty(f"header '{name}' must be an array of strings")
    return tuple(key.encode() if isinstance(key, str) else key for key in keys)


def _expiration(properties: Properties) -> int | None:
    text = properties.expiration
    if text is None:
        return None
    if not text.isdigit() or (expiration := int(text)) > MAX_EXPIRATION_MS:
        raise InvalidProperty(f"invalid expiration '{text.decode(errors='replace')}'")
    return expiration


def _delay(headers: Table) -> int:
    delay = headers.get("x-delay")
    return max(delay, 0) if isinstance(delay, int) and not isinstance(delay, bool) else 0
