"""Decodes the bytes of a connection into events, however the bytes are cut into chunks."""

from collections.abc import Callable
from enum import Enum, auto
from struct import Struct
from struct import error as StructError
from typing import Final

from posthouse.protocols.amqp.codec.assembly import Assembly
from posthouse.protocols.amqp.codec.errors import FRAME_ERROR, UNEXPECTED_FRAME, FrameError
from posthouse.protocols.amqp.codec.events import ACK, HEARTBEAT, PROTOCOL_HEADER, PUBLISH, Event
from posthouse.protocols.amqp.codec.framing import (
    BASIC_ACK,
    BASIC_CONTENT,
    BASIC_PUBLISH,
    BODY_FRAME,
    CONNECTION_CLOSE,
    CONNECTION_CLOSE_OK,
    FRAME,
    FRAME_END,
    FRAME_TYPES,
    HEADER_FRAME,
    METHOD_FRAME,
    OVERHEAD,
    PROTOCOL,
    PROTOCOLS,
)

DEFAULT_MAX_BODY: Final = 128 * 1024 * 1024

# Parts of frames that the fast path reads in one step. A number of four bytes may span the end of one frame
# (0xCE), the type of the next and its channel: one comparison instead of three.
_begin = Struct(">BHIIxxB").unpack_from
_content_header = Struct(">IIIQ").unpack_from
_content_body = Struct(">II").unpack_from
_ack = Struct(">QBB").unpack_from
_HEADER_NEXT: Final = FRAME_END << 24 | HEADER_FRAME << 16
_BODY_NEXT: Final = FRAME_END << 24 | BODY_FRAME << 16


class _Stage(Enum):
    NEW = auto()
    OPEN = auto()
    CLOSING = auto()
    """Only connection.close and close-ok are decoded."""
    DEAF = auto()
    """The peer does not speak AMQP 0-9-1, or the start of the next frame is unknown: input is ignored."""


class Decoder:
    """For one connection.

    A frame is looked at when all of it is there, so what is kept is one frame of `frame_max` at most, and
    the bodies under way. A payload may have `frame_max` bytes, as with RabbitMQ: some clients do not count
    the eight around it.
    """

    def __init__(self, *, frame_max: int, max_body: int = DEFAULT_MAX_BODY) -> None:
        self.frame_max = frame_max
        self._assembly = Assembly(max_body)
        self._stage = _Stage.NEW
        self._rest = bytearray()
        self._need = len(PROTOCOL)
        self._next = 0

    @property
    def max_body(self) -> int:
        """May change at any time, and then counts from the next message on: 0 until a client is known."""
        return self._assembly.max_body

    @max_body.setter
    def max_body(self, size: int) -> None:
        self._assembly.max_body = size

    @property
    def held(self) -> int:
        """Bytes of a frame and of messages that are not complete."""
        return len(self._rest) + self._assembly.held

    def discard(self, channel: int) -> None:
        """Drop the incomplete message, and ignore all further frames on `channel` but its close and close-ok.

        For a channel that the broker has closed. The peer's close-ok ends it, and so does `accept`.
        """
        self._assembly.discard(channel)

    def accept(self, channel: int) -> None:
        self._assembly.accept(channel)

    def close(self) -> None:
        """Decode only connection.close and close-ok from now on. A FrameError has the same effect."""
        if self._stage is not _Stage.DEAF:
            self._stage = _Stage.CLOSING

    def forget(self) -> None:
        """The connection is lost: drop incomplete frames and messages, and ignore further input."""
        self._stage = _Stage.DEAF
        self._rest = bytearray()
        self._assembly = Assembly(0)

    def feed(self, data: bytes) -> list[Event]:
        """Every event that is complete with `data`."""
        if self._rest:
            if len(self._rest) + len(data) < self._need:
                self._rest += data
                return []
            data = b"".join((self._rest, data))
            self._rest = bytearray()
        events: list[Event] = []
        try:
            if self._stage is _Stage.OPEN:
                pos = self._frames(data, 0, events)
            else:
                pos = self._other_stages(data, events)
        except FrameError as error:
            self._stage = _Stage.DEAF if error.is_lost else _Stage.CLOSING
            if not error.is_lost:
                self._rest = bytearray(data[self._next :])
                self._need = OVERHEAD
            error.events = events
            raise
        if pos < len(data):
            self._rest += memoryview(data)[pos:]
        return events

    def _frames(self, data: bytes, pos: int, events: list[Event]) -> int:
        """Decode frames; returns the position of the first incomplete one.

        Written for the two things that there are most of: whole publishes, that is method, header and body
        in a row, and acks. Both are read without a call or an object for a frame; whatever is not exactly of
        that form is left to `_frame`. The end of the data needs no checks: reading beyond it raises, and the
        last byte to be looked at is the last of the three frames. Measured by `python -m bench.amqp_codec`.
        """
        add = events.append
        available = len(data)
        unusual = self._assembly.unusual
        largest = self.frame_max
        largest_body = min(largest, self._assembly.max_body)
        while True:
            try:
                while pos < available:
                    kind, channel, length, index, size = _begin(data, pos)
                    if kind != METHOD_FRAME or (unusual and channel in unusual):
                        break
                    if index == BASIC_PUBLISH:
                        key_at = pos + 15 + size
                        end = pos + 7 + length
                        # Flags end the method: the key's length must lead there.
                        if key_at + data[key_at - 1] + 1 != end or not channel:
                            break
                        mark, length, content, size = _content_header(data, end)
                        if mark != _HEADER_NEXT + channel or content != BASIC_CONTENT:
                            break
                        after = end + 8 + length
                        if size:
                            mark, body_size = _content_body(data, after)
                            body_end = after + 8 + size
                            if (
                                mark != _BODY_NEXT + channel
                                or body_size != size
                                or data[body_end] != FRAME_END
                                or size > largest_body
                                or not 14 <= length <= largest
                            ):
                                break
                            body = data[after + 8 : body_end]
                        elif data[after] != FRAME_END or not 14 <= length <= largest:
                            break
                        else:
                            body, body_end = b"", after
                        add(
                            (
                                PUBLISH,
                                channel,
                                data[pos + 14 : key_at - 1],
                                data[key_at : end - 1],
                                data[end - 1] & 3,
                                data[end + 20 : after],
                                body,
                            )
                        )
                        pos = body_end + 1
                    elif index == BASIC_ACK:
                        tag, bits, mark = _ack(data, pos + 11)
                        if mark != FRAME_END or length != 13:
                            break
                        add((ACK, channel, tag, bits & 1 == 1))
                        pos += 21
                    else:
                        break
                else:
                    return pos
            except (StructError, IndexError):
                pass
            following = self._frame(data, pos, events, self._content)
            if not following:
                return pos
            pos = following

    def _frame(
        self,
        data: bytes,
        pos: int,
        events: list[Event],
        take: Callable[[int, int, bytes, int, int], Event | None],
    ) -> int:
        """The position behind one frame of any kind, or 0 if it is not complete."""
        available = len(data) - pos
        if available < FRAME.size:
            self._need = FRAME.size
            return 0
        kind, channel, length = FRAME.unpack_from(data, pos)
        if kind not in FRAME_TYPES:
            raise FrameError(FRAME_ERROR, f"a frame of type {kind}")
        if length > self.frame_max:
            raise FrameError(FRAME_ERROR, f"a frame of {length} bytes, where {self.frame_max} are allowed")
        if available < length + OVERHEAD:
            self._need = length + OVERHEAD
            return 0
        start = pos + FRAME.size
        end: int = start + length
        if data[end] != FRAME_END:
            raise FrameError(FRAME_ERROR, f"a frame that ends with 0x{data[end]:02X}")
        self._next = end + 1
        if (event := take(kind, channel, data, start, end)) is not None:
            events.append(event)
        return end + 1

    def _content(self, kind: int, channel: int, data: bytes, start: int, end: int) -> Event | None:
        if kind == METHOD_FRAME:
            return self._assembly.method(channel, data[start:end])
        if kind == HEADER_FRAME:
            return self._assembly.header(channel, data[start:end])
        if kind == BODY_FRAME:
            return self._assembly.body(channel, data, start, end)
        if start != end:
            raise FrameError(FRAME_ERROR, "a heartbeat with a payload")
        if channel:
            raise FrameError(UNEXPECTED_FRAME, f"a heartbeat on channel {channel}")
        return (HEARTBEAT, 0)

    def _other_stages(self, data: bytes, events: list[Event]) -> int:
        pos = 0
        if self._stage is _Stage.NEW and len(data) >= len(PROTOCOL):
            pos = len(PROTOCOL)
            events.append((PROTOCOL_HEADER, 0, data[:pos]))
            if data[:pos] in PROTOCOLS:
                self._stage = _Stage.OPEN
                return self._frames(data, pos, events)
            self._stage = _Stage.DEAF
        if self._stage is _Stage.CLOSING:
            try:
                while following := self._frame(data, pos, events, self._ending):
                    pos = following
            except FrameError:
                # The peer has been told already that it is at fault.
                self._stage = _Stage.DEAF
        return len(data) if self._stage is _Stage.DEAF else pos

    def _ending(self, kind: int, channel: int, data: bytes, start: int, end: int) -> Event | None:
        ends = kind == METHOD_FRAME and int.from_bytes(data[start : start + 4]) in (
            CONNECTION_CLOSE,
            CONNECTION_CLOSE_OK,
        )
        return self._assembly.method(0, data[start:end]) if ends and not channel else None
