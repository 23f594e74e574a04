"""The events of a decoder: tuples, because there is one for each message.

    (PUBLISH, channel, exchange, routing key, flags, properties, body)   flags: MANDATORY, IMMEDIATE
    (ACK, channel, delivery tag, multiple)
    (METHOD, channel, command)            every other method
    (HEARTBEAT, 0)
    (PROTOCOL_HEADER, 0, eight bytes)     the first of any connection
    (OVERSIZED, channel, bytes)           a publish whose body is larger than allowed, and is discarded

Properties are as they were in the content header: flags, then values.
"""

from typing import Final, Literal, TypeAlias

from pamqp.base import Frame

Command: TypeAlias = Frame
"""A method with its arguments: one of the classes in `pamqp.commands`."""

PUBLISH: Final = 0
ACK: Final = 1
METHOD: Final = 2
HEARTBEAT: Final = 3
PROTOCOL_HEADER: Final = 4
OVERSIZED: Final = 5

MANDATORY: Final = 1
IMMEDIATE: Final = 2

Publish: TypeAlias = tuple[Literal[0], int, bytes, bytes, int, bytes, bytes]
Ack: TypeAlias = tuple[Literal[1], int, int, bool]
Method: TypeAlias = tuple[Literal[2], int, Command]
Heartbeat: TypeAlias = tuple[Literal[3], int]
ProtocolHeader: TypeAlias = tuple[Literal[4], int, bytes]
Oversized: TypeAlias = tuple[Literal[5], int, int]
Event: TypeAlias = Publish | Ack | Method | Heartbeat | ProtocolHeader | Oversized
