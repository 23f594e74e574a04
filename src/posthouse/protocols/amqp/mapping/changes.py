"""Property lists with some of it changed and the rest kept byte for byte."""

from collections.abc import Mapping
from enum import Enum, auto
from struct import Struct
from typing import Final, Literal

from posthouse.protocols.amqp.codec.tables import MalformedTable, decode_table, encode_entry, table_entries
from posthouse.protocols.amqp.mapping.errors import MalformedProperties
from posthouse.protocols.amqp.mapping.properties import Flag, flags_of, spans

_FLAGS = Struct(">H")
_LENGTH = Struct(">I")


class _Change(Enum):
    REMOVE = auto()


REMOVE: Final[Literal[_Change.REMOVE]] = _Change.REMOVE


def set_headers(properties: bytes, changes: Mapping[str, object]) -> bytes:
    """With application headers set to new values, or away where the value is REMOVE."""
    places = spans(properties)
    kept: list[bytes] = []
    if Flag.HEADERS in places:
        start, end = places[Flag.HEADERS]
        changed = {name.encode() for name in changes}
        try:
            kept = [entry for name, entry in table_entries(properties, start) if name not in changed]
        except MalformedTable as error:
            raise MalformedProperties(f"headers: {error}") from None
    else:
        start = end = max((end for flag, (_, end) in places.items() if flag > Flag.HEADERS), default=2)
    kept += [encode_entry(name, value) for name, value in changes.items() if value is not REMOVE]
    table = b"".join(kept)
    return b"".join(
        (
            _FLAGS.pack(flags_of(properties) | Flag.HEADERS),
            properties[2:start],
            _LENGTH.pack(len(table)),
            table,
            properties[end:],
        )
    )


def without_expiration(properties: bytes) -> bytes:
    place = spans(properties).get(Flag.EXPIRATION)
    if place is None:
        return properties
    start, end = place
    return _FLAGS.pack(flags_of(properties) & ~Flag.EXPIRATION) + properties[2:start] + properties[end:]


def with_delivery_count(properties: bytes, count: int) -> bytes:
    """As quorum queues tell how often a message was delivered before."""
    return set_headers(properties, {"x-delivery-count": count})


def with_delay_negated(properties: bytes) -> bytes:
    """As a message looks after a delay: another delayed exchange then passes it on at once."""
    place = spans(properties).get(Flag.HEADERS)
    if place is None or b"x-delay" not in properties:
        return properties
    try:
        delay = decode_table(properties, place[0])[0].get("x-delay")
    except MalformedTable:
        return properties
    if not isinstance(delay, int) or isinstance(delay, bool) or delay <= 0:
        return properties
    return set_headers(properties, {"x-delay": -delay})
