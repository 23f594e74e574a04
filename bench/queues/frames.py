"""AMQP 0-9-1 frames as bytes, written by hand: a load generator has no time for a library.

A frame is its kind (1 byte), channel (2), length (4), so many bytes, and 0xCE. A method starts with its class
and number. A message is a method frame, a header frame with the properties, and body frames.
"""

import struct

METHOD, HEADER, BODY = 1, 2, 3
END = 0xCE
OVERHEAD = 8
"""Bytes that a frame has beside its payload."""
PREAMBLE = b"AMQP\x00\x00\x09\x01"
CHANNEL = 1
NO_TABLE = bytes(4)

Method = tuple[int, int]
START, START_OK = (10, 10), (10, 11)
TUNE, TUNE_OK = (10, 30), (10, 31)
OPEN, OPEN_OK = (10, 40), (10, 41)
CLOSE, CLOSE_OK = (10, 50), (10, 51)
CHANNEL_OPEN, CHANNEL_OPEN_OK = (20, 10), (20, 11)
CHANNEL_CLOSE = (20, 40)
EXCHANGE_DECLARE, EXCHANGE_DECLARE_OK = (40, 10), (40, 11)
QUEUE_DECLARE, QUEUE_DECLARE_OK = (50, 10), (50, 11)
QUEUE_BIND, QUEUE_BIND_OK = (50, 20), (50, 21)
QUEUE_PURGE, QUEUE_PURGE_OK = (50, 30), (50, 31)
QUEUE_DELETE, QUEUE_DELETE_OK = (50, 40), (50, 41)
QOS, QOS_OK = (60, 10), (60, 11)
CONSUME, PUBLISH, DELIVER = (60, 20), (60, 40), (60, 60)
GET, GET_OK = (60, 70), (60, 71)
ACK, NACK = (60, 80), (60, 120)
CONFIRM_SELECT, CONFIRM_SELECT_OK = (85, 10), (85, 11)

HEAD = struct.Struct(">BHI")
SETTLEMENT = struct.Struct(">BHIHHQBB")
"""A whole frame that acknowledges: all of them are as long, those of the broker and those of the consumer."""
SETTLEMENT_LENGTH = 13
PERSISTENT = struct.pack(">HB", 0x1000, 2)
"""A property list of nothing but delivery-mode 2."""


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return HEAD.pack(kind, channel, len(payload)) + payload + bytes((END,))


def method(channel: int, number: Method, arguments: bytes = b"") -> bytes:
    return frame(METHOD, channel, struct.pack(">HH", *number) + arguments)


def short(text: str) -> bytes:
    data = text.encode()
    return bytes((len(data),)) + data


def long(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def publish(exchange: str, key: str, body: bytes, frame_max: int) -> bytes:
    """A persistent message, whole."""
    return method(CHANNEL, PUBLISH, b"\0\0" + short(exchange) + short(key) + b"\0") + content(body, frame_max)


def deliver(tag: str, number: int, exchange: str, key: str, body: bytes, frame_max: int) -> bytes:
    """What a broker sends to a consumer; only the sink needs it."""
    arguments = short(tag) + struct.pack(">Q", number) + b"\0" + short(exchange) + short(key)
    return method(CHANNEL, DELIVER, arguments) + content(body, frame_max)


def content(body: bytes, frame_max: int) -> bytes:
    most = frame_max - OVERHEAD
    header = struct.pack(">HHQ", DELIVER[0], 0, len(body)) + PERSISTENT
    parts = [body[start : start + most] for start in range(0, len(body), most)]
    return frame(HEADER, CHANNEL, header) + b"".join(frame(BODY, CHANNEL, part) for part in parts)


def ack(tag: int, *, multiple: bool) -> bytes:
    return SETTLEMENT.pack(METHOD, CHANNEL, SETTLEMENT_LENGTH, *ACK, tag, multiple, END)
