"""The body of a batch send: messages one behind the other.

size          4 bytes: of the message with these four
magic, crc    4 bytes each: 0 and not read
flag          4 bytes, signed
body          4 bytes of length
properties    2 bytes of length, 32,767 at most; a properties string in UTF-8
"""

from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import Final

from posthouse.protocols.rocketmq.codec.errors import BadBatch

DEFAULT_MAX_MESSAGES: Final = 32_768
"""The smallest message has 22 bytes, and ten times as many when decoded."""
LONGEST_PROPERTIES: Final = 0x7FFF

_head = Struct(">IIIiI")
_properties_size = Struct(">H").unpack_from
_OVERHEAD: Final = _head.size + 2


@dataclass(slots=True, kw_only=True)
class BatchMessage:
    """Not frozen: see Command."""

    flag: int
    body: bytes
    properties: str


def decode_batch(data: bytes | memoryview, *, max_messages: int = DEFAULT_MAX_MESSAGES) -> list[BatchMessage]:
    """Raises BadBatch. An empty body is a batch without messages."""
    data = bytes(data)
    messages: list[BatchMessage] = []
    pos = 0
    try:
        while pos < len(data):
            size, _, _, flag, body_size = _head.unpack_from(data, pos)
            body_at = pos + _head.size
            properties_at = body_at + body_size
            (properties_size,) = _properties_size(data, properties_at)
            end = properties_at + 2 + properties_size
            if size != end - pos or end > len(data) or properties_size > LONGEST_PROPERTIES:
                raise BadBatch(f"message {len(messages)} of a batch: its lengths contradict each other")
            if len(messages) == max_messages:
                raise BadBatch(f"a batch of more than {max_messages} messages")
            messages.append(
                BatchMessage(
                    flag=flag,
                    body=data[body_at:properties_at],
                    properties=data[properties_at + 2 : end].decode("utf-8", "replace"),
                )
            )
            pos = end
    except StructError:
        raise BadBatch(f"message {len(messages)} of a batch ends too early") from None
    return messages


def encode_batch(messages: Iterable[BatchMessage]) -> bytes:
    parts: list[bytes] = []
    for message in messages:
        properties = message.properties.encode()
        if len(properties) > LONGEST_PROPERTIES:
            raise BadBatch(f"properties of {len(properties)} bytes: {LONGEST_PROPERTIES} are possible")
        body = message.body
        size = _OVERHEAD + len(body) + len(properties)
        parts += (
            _head.pack(size, 0, 0, message.flag, len(body)),
            body,
            len(properties).to_bytes(2),
            properties,
        )
    return b"".join(parts)
