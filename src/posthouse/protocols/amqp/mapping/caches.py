"""Envelopes of published messages and deliveries of records, remembered: most messages repeat the one before.

Long entries are not kept: they contain ids and texts that differ from message to message.
"""

from collections.abc import Callable
from typing import Final

from posthouse.broker.queues.envelope import Envelope
from posthouse.protocols.amqp.mapping.deliveries import (
    Delivery,
    Unplaced,
    delivery_of,
    with_timestamp,
)
from posthouse.protocols.amqp.mapping.envelopes import envelope_of

MAX_CACHED: Final = 4096
LONGEST_PROPERTIES: Final = 512
LONGEST_SECTION: Final = 2048


class EnvelopeCache:
    """By exchange and properties, as they were received."""

    def __init__(self) -> None:
        self._cache: dict[tuple[bytes, bytes], Envelope] = {}

    def of(self, exchange: bytes, properties: bytes) -> Envelope:
        """Raises InvalidProperty and MalformedProperties."""
        key = (exchange, properties)
        envelope = self._cache.get(key)
        if envelope is None:
            envelope = envelope_of(exchange, properties)
            if len(properties) <= LONGEST_PROPERTIES:
                if len(self._cache) >= MAX_CACHED:
                    self._cache.clear()
                self._cache[key] = envelope
        return envelope


class DeliveryCache:
    """By the headers of the record, encoded."""

    def __init__(self, exchange_of: Callable[[str], bytes]) -> None:
        """`exchange_of` gives the name of the exchange that a topic belongs to, empty if there is none."""
        self._exchange_of = exchange_of
        self._cache: dict[bytes, Delivery | Unplaced] = {}

    def of(self, section: bytes, topic: str, timestamp: int) -> Delivery:
        """`section` has the record's headers; `timestamp` is in milliseconds."""
        found = self._cache.get(section)
        if found is None:
            found = delivery_of(section)
            if len(section) <= LONGEST_SECTION:
                if len(self._cache) >= MAX_CACHED:
                    self._cache.clear()
                self._cache[section] = found
        if isinstance(found, Delivery):
            return found
        properties = found.properties
        if found.is_foreign and timestamp >= 0:
            properties = with_timestamp(properties, timestamp // 1000)
        return Delivery(self._exchange_of(topic), properties)
