"""Messages in log format: the bodies of answers to pulls and queries, and of a transaction check.

size                    4 bytes: of the message with these four
magic                   4 bytes: DAA320A7, or DAA320AB where the topic has 2 bytes of length
crc                     4 bytes: CRC-32 of the body without its top bit
queue, flag             4 bytes each, signed
queue offset, position  8 bytes each, signed; the position is the "physical" or "commit log" offset
system flags            4 bytes
born at, born host      8 bytes of milliseconds; 8 or 20 bytes of host, as the flags say
stored at, stored host  likewise
reconsume times         4 bytes
prepared position       8 bytes: of the half message, in a transaction
body                    4 bytes of length
topic                   1 or 2 bytes of length
properties              2 bytes of length, 32,767 at most; a properties string in UTF-8

The topic's length is signed for Java, so one byte says 127 at most. The Go client does not look at the magic,
and reads a length of one byte always: it cannot consume from topics with longer names.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Final
from zlib import crc32

from posthouse.protocols.rocketmq.codec.errors import BadStoredMessage
from posthouse.protocols.rocketmq.codec.hosts import V4_SIZE, V6_SIZE
from posthouse.protocols.rocketmq.codec.message_ids import make_message_id

MAGIC: Final = 0xDAA320A7
MAGIC_LONG_TOPIC: Final = 0xDAA320AB
LONGEST_PROPERTIES: Final = 0x7FFF
LONGEST_TOPIC: Final = 0x7FFF
_LONGEST_SHORT_TOPIC: Final = 0x7F
_CRC_BITS: Final = 0x7FFFFFFF
_BORN_HOST_V6: Final = 16
_STORED_HOST_V6: Final = 32
_HOST_BITS: Final = _BORN_HOST_V6 | _STORED_HOST_V6
_FLAGS_AT: Final = 36

# By the bits of the hosts: everything up to the body, in one step.
_HEADS: Final = {
    bits: Struct(
        f">IIIiiqqIq{V6_SIZE if bits & _BORN_HOST_V6 else V4_SIZE}sq"
        f"{V6_SIZE if bits & _STORED_HOST_V6 else V4_SIZE}siqI"
    )
    for bits in (0, _BORN_HOST_V6, _STORED_HOST_V6, _HOST_BITS)
}
_V6_BITS: Final = {
    (V4_SIZE, V4_SIZE): 0,
    (V6_SIZE, V4_SIZE): _BORN_HOST_V6,
    (V4_SIZE, V6_SIZE): _STORED_HOST_V6,
    (V6_SIZE, V6_SIZE): _HOST_BITS,
}
_flags = Struct(">I").unpack_from
_short = Struct(">H").unpack_from


@dataclass(slots=True, kw_only=True)
class StoredMessage:
    """Not frozen: see Command."""

    topic: str
    queue: int
    queue_offset: int
    position: int
    """Identifies the message in the broker: clients send it back."""
    body: bytes
    properties: str
    born_at: int
    """Milliseconds."""
    born_host: bytes
    """As `pack_host` returns it; the bits of `system_flags` for IPv6 follow from its size."""
    stored_at: int
    stored_host: bytes
    flag: int = 0
    system_flags: int = 0
    """MessageFlag and Compression."""
    reconsume_times: int = 0
    prepared_position: int = 0
    crc: int | None = None
    """Of the body; computed if it is None."""

    @property
    def message_id(self) -> str:
        return make_message_id(self.stored_host, self.position)


def body_crc(body: bytes) -> int:
    return crc32(body) & _CRC_BITS


def encode_stored_message(message: StoredMessage) -> bytes:
    """Raises BadStoredMessage for what does not fit."""
    topic = message.topic.encode()
    properties = message.properties.encode()
    body = message.body
    topic_size = len(topic)
    if topic_size <= _LONGEST_SHORT_TOPIC:
        magic, topic_prefix = MAGIC, topic_size.to_bytes(1)
    elif topic_size <= LONGEST_TOPIC:
        magic, topic_prefix = MAGIC_LONG_TOPIC, topic_size.to_bytes(2)
    else:
        raise BadStoredMessage(f"a topic of {topic_size} bytes: {LONGEST_TOPIC} are possible")
    if len(properties) > LONGEST_PROPERTIES:
        raise BadStoredMessage(f"properties of {len(properties)} bytes: {LONGEST_PROPERTIES} are possible")
    bits = _V6_BITS.get((len(message.born_host), len(message.stored_host)))
    if bits is None:
        raise BadStoredMessage("a host that is not packed")
    head = _HEADS[bits]
    size = head.size + len(body) + len(topic_prefix) + topic_size + 2 + len(properties)
    try:
        packed = head.pack(
            size,
            magic,
            crc32(body) & _CRC_BITS if message.crc is None else message.crc,
            message.queue,
            message.flag,
            message.queue_offset,
            message.position,
            message.system_flags & ~_HOST_BITS | bits,
            message.born_at,
            message.born_host,
            message.stored_at,
            message.stored_host,
            message.reconsume_times,
            message.prepared_position,
            len(body),
        )
    except StructError as error:
        raise BadStoredMessage(f"a number that does not fit: {error}") from None
    return b"".join((packed, body, topic_prefix, topic, len(properties).to_bytes(2), properties))


def encode_stored_messages(messages: Iterable[StoredMessage]) -> bytes:
    return b"".join([encode_stored_message(message) for message in messages])


def decode_stored_messages(data: bytes | memoryview) -> list[StoredMessage]:
    """Raises BadStoredMessage. Checksums are read and not compared, as in clients."""
    data = bytes(data)
    messages: list[StoredMessage] = []
    pos = 0
    try:
        while pos < len(data):
            message, pos = _decode(data, pos)
            messages.append(message)
    except StructError:
        raise BadStoredMessage(f"message {len(messages)} ends too early") from None
    return messages


def _decode(data: bytes, start: int) -> tuple[StoredMessage, int]:
    (flags,) = _flags(data, start + _FLAGS_AT)
    head = _HEADS[flags & _HOST_BITS]
    (
        size,
        magic,
        crc,
        queue,
        flag,
        queue_offset,
        position,
        _,
        born_at,
        born_host,
        stored_at,
        stored_host,
        reconsume_times,
        prepared_position,
        body_size,
    ) = head.unpack_from(data, start)
    body_at = start + head.size
    topic_at = body_at + body_size
    if magic == MAGIC_LONG_TOPIC:
        (topic_size,) = _short(data, topic_at)
        topic_from = topic_at + 2
    elif magic == MAGIC and topic_at < len(data):
        topic_size = data[topic_at]
        topic_from = topic_at + 1
    else:
        raise BadStoredMessage(f"a message with magic {magic:08X}, or one that ends too early")
    properties_at = topic_from + topic_size
    (properties_size,) = _short(data, properties_at)
    end = properties_at + 2 + properties_size
    if size != end - start or end > len(data) or properties_size > LONGEST_PROPERTIES:
        raise BadStoredMessage("a message whose lengths contradict each other")
    message = StoredMessage(
        topic=data[topic_from:properties_at].decode("utf-8", "replace"),
        queue=queue,
        queue_offset=queue_offset,
        position=position,
        body=data[body_at:topic_at],
        properties=data[properties_at + 2 : end].decode("utf-8", "replace"),
        born_at=born_at,
        born_host=born_host,
        stored_at=stored_at,
        stored_host=stored_host,
        flag=flag,
        system_flags=flags,
        reconsume_times=reconsume_times,
        prepared_position=prepared_position,
        crc=crc,
    )
    return message, end
