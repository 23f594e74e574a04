"""The attributes that routing matches, of a message in the log, with the types that its publisher used."""

from posthouse.broker.queues.attributes import Attributes
from posthouse.model.errors import CorruptBatch
from posthouse.protocols.amqp.mapping.deaths import told_deaths
from posthouse.protocols.amqp.mapping.envelopes import copy_keys
from posthouse.protocols.amqp.mapping.errors import PropertyError
from posthouse.protocols.amqp.mapping.properties import parse
from posthouse.protocols.amqp.mapping.readable import PROPERTIES
from posthouse.records.header_section import decode_section


def read_attributes(headers: bytes) -> Attributes | None:
    """None for a record that was not published by AMQP."""
    if PROPERTIES not in headers:
        return None
    try:
        for name, value in decode_section(headers):
            if name == PROPERTIES:
                properties = parse(value or b"")
                expiration = properties.expiration
                return Attributes(
                    headers=properties.headers,
                    priority=properties.priority or 0,
                    more_keys=copy_keys(properties.headers),
                    deaths=told_deaths(properties.headers),
                    expiration=None if expiration is None else expiration.decode(errors="replace"),
                )
    except (CorruptBatch, PropertyError):
        return None
    return None
