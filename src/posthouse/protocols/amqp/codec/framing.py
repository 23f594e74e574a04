"""The frame, and the numbers in it.

type        1 byte: method, header, body, heartbeat
channel     2 bytes
size        4 bytes, of the payload
payload     method: class id, method id (2 bytes each; together the *index*), arguments
            header: class id, weight (2 bytes each), body size (8 bytes), properties
0xCE        1 byte
"""

from struct import Struct
from typing import Final

FRAME: Final = Struct(">BHI")
OVERHEAD: Final = FRAME.size + 1
FRAME_END: Final = 0xCE
END: Final = b"\xce"

METHOD_FRAME: Final = 1
HEADER_FRAME: Final = 2
BODY_FRAME: Final = 3
HEARTBEAT_FRAME: Final = 8
FRAME_TYPES: Final = frozenset((METHOD_FRAME, HEADER_FRAME, BODY_FRAME, HEARTBEAT_FRAME))

CONNECTION_OPEN: Final = 0x000A0028
CONNECTION_CLOSE: Final = 0x000A0032
CONNECTION_CLOSE_OK: Final = 0x000A0033
CHANNEL_CLOSE: Final = 0x00140028
CHANNEL_CLOSE_OK: Final = 0x00140029
QUEUE_DECLARE_OK: Final = 0x0032000B
BASIC_PUBLISH: Final = 0x003C0028
BASIC_RETURN: Final = 0x003C0032
BASIC_DELIVER: Final = 0x003C003C
BASIC_GET_OK: Final = 0x003C0047
BASIC_ACK: Final = 0x003C0050
BASIC_NACK: Final = 0x003C0078

BASIC_CLASS: Final = 60
BASIC_CONTENT: Final = BASIC_CLASS << 16
"""Class and weight in the header of any content."""
CONTENT_HEADER: Final = Struct(">IQ")

PROTOCOL: Final = b"AMQP\x00\x00\x09\x01"
PROTOCOLS: Final = frozenset((PROTOCOL, b"AMQP\x01\x01\x00\x09"))
"""The second one is that of AMQP 0-9, which 0-9-1 can stand for: older libraries send it."""
