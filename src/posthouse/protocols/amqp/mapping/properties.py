"""The property list of a message.

flags       2 bytes: the highest bit says whether the first property is there, and so on; the two lowest
            are always 0
values      of those that are there: short strings (1 byte of length), one table, single bytes, and the
            timestamp (8 bytes)
"""

from enum import IntEnum
from struct import Struct
from struct import error as StructError
from typing import Any, Final, NamedTuple

from posthouse.protocols.amqp.codec.tables import MalformedTable, Table, decode_table
from posthouse.protocols.amqp.mapping.errors import MalformedProperties

NO_PROPERTIES: Final = b"\x00\x00"
PERSISTENT: Final = 2

_LENGTH = Struct(">I")


class Flag(IntEnum):
    CONTENT_TYPE = 0x8000
    CONTENT_ENCODING = 0x4000
    HEADERS = 0x2000
    DELIVERY_MODE = 0x1000
    PRIORITY = 0x0800
    CORRELATION_ID = 0x0400
    REPLY_TO = 0x0200
    EXPIRATION = 0x0100
    MESSAGE_ID = 0x0080
    TIMESTAMP = 0x0040
    TYPE = 0x0020
    USER_ID = 0x0010
    APP_ID = 0x0008
    CLUSTER_ID = 0x0004


# Plain numbers for the loops below: an enum's own are slower to compare.
_ORDER: Final = tuple(int(flag) for flag in Flag)
_NAMES: Final = {int(flag): flag.name.lower() for flag in Flag}
_HEADERS: Final = int(Flag.HEADERS)
_FIXED: Final = {int(Flag.DELIVERY_MODE): 1, int(Flag.PRIORITY): 1, int(Flag.TIMESTAMP): 8}
_UNUSED: Final = 0x0003


class Properties(NamedTuple):
    """Strings stay bytes: they need not be UTF-8, and are only passed on.

    A tuple, because one is built for nearly every message that carries an id or a time of its own.
    """

    headers: Table
    content_type: bytes | None = None
    content_encoding: bytes | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: bytes | None = None
    reply_to: bytes | None = None
    expiration: bytes | None = None
    message_id: bytes | None = None
    timestamp: int | None = None
    type: bytes | None = None
    user_id: bytes | None = None
    app_id: bytes | None = None
    cluster_id: bytes | None = None


def parse(properties: bytes) -> Properties:
    found: dict[str, Any] = {"headers": {}}
    for flag, (start, end) in spans(properties).items():
        if flag == _HEADERS:
            try:
                found["headers"], table_end = decode_table(properties, start)
            except MalformedTable as error:
                raise MalformedProperties(f"headers: {error}") from None
            if table_end != end:
                raise MalformedProperties("headers go beyond their end")
        elif flag in _FIXED:
            found[_NAMES[flag]] = int.from_bytes(properties[start:end])
        else:
            found[_NAMES[flag]] = properties[start + 1 : end]
    return Properties(**found)


def spans(properties: bytes) -> dict[int, tuple[int, int]]:
    """Where the value of each property that is there begins and ends, by flag and in order."""
    flags = flags_of(properties)
    found = {}
    pos = 2
    try:
        for flag in _ORDER:
            if flags & flag:
                start = pos
                if flag in _FIXED:
                    pos += _FIXED[flag]
                elif flag == _HEADERS:
                    pos += 4 + _LENGTH.unpack_from(properties, pos)[0]
                else:
                    pos += 1 + properties[pos]
                found[flag] = (start, pos)
    except (IndexError, StructError):
        raise MalformedProperties("the property list is cut off") from None
    if pos != len(properties):
        raise MalformedProperties(f"the property list has {len(properties)} bytes and ends at {pos}")
    return found


def flags_of(properties: bytes) -> int:
    if len(properties) < 2:
        raise MalformedProperties("the property list has no flags")
    flags = int.from_bytes(properties[:2])
    if flags & _UNUSED:
        raise MalformedProperties("the property list has flags that mean nothing")
    return flags


def user_id_of(properties: bytes) -> bytes | None:
    """The user-id property, for comparison with the authenticated user; None if it is not set."""
    if len(properties) < 2 or not properties[1] & Flag.USER_ID:
        return None
    start, end = spans(properties)[Flag.USER_ID]
    return properties[start + 1 : end]
