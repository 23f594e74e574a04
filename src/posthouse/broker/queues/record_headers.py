"""Record headers that mean something to queues, whatever protocol wrote them."""

from posthouse.model.errors import CorruptBatch
from posthouse.records.header_section import decode_section

EXCHANGE = b"posthouse.exchange"
"""The exchange that a message was published to; empty for the default one."""
ROUTING_KEY = b"posthouse.routing-key"
"""Takes the place of the record's key when a record of a stream is routed."""
DEATHS = b"posthouse.deaths"
"""See `dead_letters`."""

WEBHOOK = b"posthouse.webhook-"
"""Begins the names of headers in which a webhook notes on a dead letter what its endpoint answered last."""


def exchange_in(headers: bytes) -> str | None:
    """The exchange that encoded headers name; None where they name none, or cannot be decoded."""
    try:
        for name, value in decode_section(headers):
            if name == EXCHANGE:
                return (value or b"").decode(errors="replace")
    except CorruptBatch:
        pass  # headers are as their producer wrote them
    return None
