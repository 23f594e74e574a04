"""Encodes frames. The most frequent ones are written out by hand."""

from struct import Struct
from typing import Final

from posthouse.protocols.amqp.codec.commands import encode_command as method
from posthouse.protocols.amqp.codec.framing import (
    BASIC_ACK,
    BASIC_CONTENT,
    BASIC_DELIVER,
    BASIC_GET_OK,
    BASIC_NACK,
    BASIC_RETURN,
    BODY_FRAME,
    END,
    FRAME,
    FRAME_END,
    HEADER_FRAME,
    METHOD_FRAME,
    OVERHEAD,
    QUEUE_DECLARE_OK,
)

__all__ = ("HEARTBEAT", "ack", "declare_ok", "deliver", "get_ok", "method", "nack", "returned")

HEARTBEAT: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"
_MAX_SHORT: Final = 255

_settlement = Struct(">BHIIQBB").pack
_deliver_begin = Struct(">BHIIB").pack
_deliver_tag = Struct(">QBB").pack
# The end of one frame (0xCE), and the type and channel of the next, are one number.
_content_header = Struct(">IIIQ").pack
_content_body = Struct(">II").pack
_frame = FRAME.pack
_get_ok = Struct(">IQB").pack
_return = Struct(">IH").pack
_HEADER_NEXT: Final = FRAME_END << 24 | HEADER_FRAME << 16
_BODY_NEXT: Final = FRAME_END << 24 | BODY_FRAME << 16
_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(256))
_COUNT = Struct(">I")
_COUNTS = Struct(">II")
_INDEX = Struct(">I")


def ack(channel: int, tag: int, multiple: bool) -> bytes:
    return _settlement(METHOD_FRAME, channel, 13, BASIC_ACK, tag, multiple, FRAME_END)


def nack(channel: int, tag: int, multiple: bool) -> bytes:
    """basic.nack of a publish that was refused."""
    return _settlement(METHOD_FRAME, channel, 13, BASIC_NACK, tag, multiple, FRAME_END)


def deliver(
    channel: int,
    consumer_tag: bytes,
    tag: int,
    redelivered: bool,
    exchange: bytes,
    key: bytes,
    properties: bytes,
    body: bytes,
    frame_max: int,
) -> bytes:
    """Method, header and body. A key of more than 255 bytes, as other protocols allow, is cut."""
    # In line and with one join, because this runs for every message that goes out: `bench.amqp_codec`.
    size = len(body)
    if size > frame_max - 8 or not size or len(key) > 255:
        return _deliver_unusual(
            channel, consumer_tag, tag, redelivered, exchange, key, properties, body, frame_max
        )
    name_size, exchange_size, key_size = len(consumer_tag), len(exchange), len(key)
    return b"".join(
        (
            _deliver_begin(
                METHOD_FRAME, channel, 16 + name_size + exchange_size + key_size, BASIC_DELIVER, name_size
            ),
            consumer_tag,
            _deliver_tag(tag, redelivered, exchange_size),
            exchange,
            _ONE_BYTE[key_size],
            key,
            _content_header(_HEADER_NEXT + channel, 12 + len(properties), BASIC_CONTENT, size),
            properties,
            _content_body(_BODY_NEXT + channel, size),
            body,
            END,
        )
    )


def _deliver_unusual(
    channel: int,
    consumer_tag: bytes,
    tag: int,
    redelivered: bool,
    exchange: bytes,
    key: bytes,
    properties: bytes,
    body: bytes,
    frame_max: int,
) -> bytes:
    arguments = b"".join(
        (
            _INDEX.pack(BASIC_DELIVER),
            _short(consumer_tag),
            _deliver_tag(tag, redelivered, len(exchange)),
            exchange,
            _short(key),
        )
    )
    return _with_content(channel, arguments, properties, body, frame_max)


def get_ok(
    channel: int,
    tag: int,
    redelivered: bool,
    exchange: bytes,
    key: bytes,
    message_count: int,
    properties: bytes,
    body: bytes,
    frame_max: int,
) -> bytes:
    arguments = b"".join(
        (
            _get_ok(BASIC_GET_OK, tag, redelivered),
            _short(exchange),
            _short(key),
            _COUNT.pack(min(message_count, 0xFFFFFFFF)),
        )
    )
    return _with_content(channel, arguments, properties, body, frame_max)


def returned(
    channel: int,
    code: int,
    text: str,
    exchange: bytes,
    key: bytes,
    properties: bytes,
    body: bytes,
    frame_max: int,
) -> bytes:
    arguments = b"".join(
        (_return(BASIC_RETURN, code), _short(text.encode()), _short(exchange), _short(key)),
    )
    return _with_content(channel, arguments, properties, body, frame_max)


def declare_ok(channel: int, queue: str, message_count: int, consumer_count: int) -> bytes:
    """For any name: pamqp's own object refuses many that RabbitMQ takes."""
    payload = b"".join(
        (
            _INDEX.pack(QUEUE_DECLARE_OK),
            _short(queue.encode()),
            _COUNTS.pack(min(message_count, 0xFFFFFFFF), consumer_count),
        )
    )
    return _frame(METHOD_FRAME, channel, len(payload)) + payload + END


def _with_content(channel: int, arguments: bytes, properties: bytes, body: bytes, frame_max: int) -> bytes:
    size = len(body)
    parts = [
        _frame(METHOD_FRAME, channel, len(arguments)),
        arguments,
        _content_header(_HEADER_NEXT + channel, 12 + len(properties), BASIC_CONTENT, size),
        properties,
    ]
    largest = frame_max - OVERHEAD
    for start in range(0, size, largest):
        part = body[start : start + largest] if size > largest else body
        parts += (_content_body(_BODY_NEXT + channel, len(part)), part)
    parts.append(END)
    return b"".join(parts)


def _short(text: bytes) -> bytes:
    text = text[:_MAX_SHORT]
    return _ONE_BYTE[len(text)] + text
