"""Assembles messages that arrive in several frames, and checks the order of the frames of each channel."""

from posthouse.protocols.amqp.codec.commands import decode_command
from posthouse.protocols.amqp.codec.errors import (
    CHANNEL_ERROR,
    FRAME_ERROR,
    UNEXPECTED_FRAME,
    FrameError,
    undecodable,
)
from posthouse.protocols.amqp.codec.events import ACK, IMMEDIATE, MANDATORY, METHOD, OVERSIZED, PUBLISH, Event
from posthouse.protocols.amqp.codec.framing import (
    BASIC_ACK,
    BASIC_CLASS,
    BASIC_PUBLISH,
    CHANNEL_CLOSE,
    CHANNEL_CLOSE_OK,
    CONTENT_HEADER,
)

# Messages of full size that all channels of a connection may send at the same time.
_FULL_BODIES = 4
# Messages that were begun: a publish of 17 bytes begins one, on any of 65,535 channels, open or not.
_MAX_UNDER_WAY = 2048
_HEADER_SIZE = CONTENT_HEADER.size + 2

# As RabbitMQ says it.
_NO_METHOD = "expected method frame, got non method frame instead"
_NO_HEADER = f"expected content header for class {BASIC_CLASS}, got non content header frame instead"
_NO_BODY = "expected content body, got non content body frame instead"


class _Message:
    """A publish whose header or body is not complete."""

    __slots__ = ("body", "exchange", "flags", "key", "properties", "remaining")

    def __init__(self, exchange: bytes, key: bytes, flags: int) -> None:
        self.exchange = exchange
        self.key = key
        self.flags = flags
        self.properties = b""
        """Empty until the header is there: then they are two bytes at least."""
        self.remaining = 0
        # Not a list of parts: a peer that sends a body byte by byte must not cost fifty times of it.
        self.body = bytearray()

    def event(self, channel: int, body: bytes) -> Event:
        return (PUBLISH, channel, self.exchange, self.key, self.flags, self.properties, body)


class Assembly:
    def __init__(self, max_body: int) -> None:
        self.max_body = max_body
        self.unusual: dict[int, _Message | None] = {}
        """Channels with a message under way, or None for those whose frames are discarded."""
        self.held = 0
        """Bytes of bodies that are not complete."""

    def discard(self, channel: int) -> None:
        if (message := self.unusual.get(channel)) is not None:
            self.held -= len(message.body)
        self.unusual[channel] = None

    def accept(self, channel: int) -> None:
        if self.unusual.get(channel, self) is None:
            del self.unusual[channel]

    def method(self, channel: int, payload: bytes) -> Event | None:
        if len(payload) < 4:
            raise FrameError(FRAME_ERROR, "a method frame without a method")
        index = int.from_bytes(payload[:4])
        if channel in self.unusual:
            if (message := self.unusual[channel]) is not None:
                raise _unexpected(_NO_BODY if message.properties else _NO_HEADER)
            if index not in (CHANNEL_CLOSE, CHANNEL_CLOSE_OK):
                return None
            if index == CHANNEL_CLOSE_OK:
                # The peer may open the channel again in the same chunk, before `accept` is called.
                del self.unusual[channel]
        if index == BASIC_PUBLISH:
            self._publish(channel, payload)
            return None
        if index == BASIC_ACK and len(payload) == 13:
            return (ACK, channel, int.from_bytes(payload[4:12]), payload[12] & 1 == 1)
        return (METHOD, channel, decode_command(payload))

    def _publish(self, channel: int, payload: bytes) -> None:
        if not channel:
            raise FrameError(CHANNEL_ERROR, "nothing can be published on channel 0", BASIC_PUBLISH)
        try:
            key_at = 8 + payload[6]
            end = key_at + payload[key_at - 1]
            flags = payload[end] & (MANDATORY | IMMEDIATE)
        except IndexError:
            raise undecodable(payload[4:], BASIC_PUBLISH) from None
        if end + 1 != len(payload):
            raise undecodable(payload[4:], BASIC_PUBLISH)
        if len(self.unusual) >= _MAX_UNDER_WAY:
            # Not a channel's error: the rest of such a stream is not worth looking at.
            raise FrameError(FRAME_ERROR, "messages on too many channels at once", BASIC_PUBLISH)
        self.unusual[channel] = _Message(payload[7 : key_at - 1], payload[key_at:end], flags)

    def header(self, channel: int, payload: bytes) -> Event | None:
        message = self._expecting(channel)
        if message is None:
            return None
        if message.properties:
            raise _unexpected(_NO_BODY)
        if len(payload) < _HEADER_SIZE:
            raise FrameError(FRAME_ERROR, "a content header that is cut off")
        kind, size = CONTENT_HEADER.unpack_from(payload)
        if kind >> 16 != BASIC_CLASS:
            raise _unexpected(
                f"expected content header for class {BASIC_CLASS}, got one for class {kind >> 16} instead"
            )
        if kind & 0xFFFF:  # its weight
            raise _unexpected(_NO_HEADER)
        if size > self.max_body:
            # Of the channel, not of the connection: its other channels go on, and its body is passed over.
            self.unusual[channel] = None
            return (OVERSIZED, channel, size)
        message.properties = payload[CONTENT_HEADER.size :]
        message.remaining = size
        if size:
            return None
        del self.unusual[channel]
        return message.event(channel, b"")

    def body(self, channel: int, data: bytes, start: int, end: int) -> Event | None:
        message = self._expecting(channel)
        if message is None:
            return None
        if not message.properties:
            raise _unexpected(_NO_HEADER)
        size = end - start
        if size > message.remaining:
            raise FrameError(FRAME_ERROR, "a body is longer than its header says", BASIC_PUBLISH)
        if size == message.remaining and not message.body:
            del self.unusual[channel]
            return message.event(channel, data[start:end])
        message.body += memoryview(data)[start:end]
        message.remaining -= size
        self.held += size
        if not message.remaining:
            del self.unusual[channel]
            self.held -= len(message.body)
            return message.event(channel, bytes(message.body))
        if self.held > self.max_body * _FULL_BODIES:
            raise FrameError(FRAME_ERROR, "too many large messages at once", BASIC_PUBLISH)
        return None

    def _expecting(self, channel: int) -> _Message | None:
        try:
            return self.unusual[channel]
        except KeyError:
            raise FrameError(UNEXPECTED_FRAME, _NO_METHOD) from None


def _unexpected(text: str) -> FrameError:
    return FrameError(UNEXPECTED_FRAME, text, BASIC_PUBLISH)
