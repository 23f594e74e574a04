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


class EnvelopeCache(dict[tuple[bytes, bytes], Envelope]):
    """By exchange and properties, as they were received. A dictionary: a hit is no call of Python."""

    def __missing__(self, key: tuple[bytes, bytes]) -> Envelope:
        """Raises InvalidProperty and MalformedProperties."""
        exchange, properties = key
        envelope = envelope_of(exchange, properties)
        if len(properties) <= LONGEST_PROPERTIES:
            if len(self) >= MAX_CACHED:
                self.clear()
            self[key] = envelope
        return envelope


class DeliveryCache(dict[bytes, Delivery | Unplaced]):
    """By the headers of the record, encoded."""

    def __init__(self, exchange_of: Callable[[str], bytes]) -> None:
        """`exchange_of` gives the name of the exchange that a topic belongs to, empty if there is none."""
        super().__init__()
        self._exchange_of = exchange_of

    def __missing__(self, section: bytes) -> Delivery | Unplaced:
        found = delivery_of(section)
        if len(section) <= LONGEST_SECTION:
            if len(self) >= MAX_CACHED:
                self.clear()
            self[section] = found
        return found

    def of(self, section: bytes, topic: str, timestamp: int) -> Delivery:
        """`section` has the record's headers; `timestamp` is in milliseconds."""
        found = self[section]
        return found if isinstance(found, Delivery) else self.placed(found, topic, timestamp)

    def placed(self, found: Unplaced, topic: str, timestamp: int) -> Delivery:
        """A message of a record that does not name its exchange."""
        properties = found.properties
        if found.is_foreign and timestamp >= 0:
            properties = with_timestamp(properties, timestamp // 1000)
        return Delivery(self._exchange_of(topic), properties)
