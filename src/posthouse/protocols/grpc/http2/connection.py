"""The server's side of one connection, sans-IO: bytes in, calls of an application, bytes out.

What a client does wrong to a stream resets the stream, anything else ends the connection with GOAWAY and
raises `ConnectionFault`. Memory is bounded by windows that reopen only as the application takes data, by
limits of streams and headers, and by allowances for frames that carry nothing.

    idle ─HEADERS→ open ─END_STREAM→ half-closed ─trailers sent→ closed
      a stream is in `streams` until it is closed; RST_STREAM of either side closes it at once
"""

from collections import OrderedDict
from collections.abc import Callable
from struct import Struct
from typing import Final, Protocol

from posthouse.protocols.grpc.http2.errors import ConnectionFault, ErrorCode, StreamFault
from posthouse.protocols.grpc.http2.field_decoder import FieldDecoder
from posthouse.protocols.grpc.http2.frame_reader import FrameReader, HeadersReader, unpadded
from posthouse.protocols.grpc.http2.frames import (
    ACK,
    DEFAULT_WINDOW,
    END_STREAM,
    PADDED,
    STREAM_BITS,
    FrameType,
    frame,
    goaway,
    rst_stream,
    window_update,
)
from posthouse.protocols.grpc.http2.header_blocks import (
    HeaderList,
    Request,
    check_size,
    check_trailers,
    malformed,
    read_request,
)
from posthouse.protocols.grpc.http2.limits import Allowance, Http2Limits
from posthouse.protocols.grpc.http2.sending import Output, Sender
from posthouse.protocols.grpc.http2.settings import Setting, decode_settings, encode_settings
from posthouse.protocols.grpc.http2.streams import Stream

_U32: Final = Struct(">I")
_EARNED_BY_REQUEST: Final = 8
_REMEMBERED_RESETS: Final = 1_000
"""Streams that were reset, of which frames may still arrive."""
_STALL_SECONDS: Final = 60
"""A client that opens no window for that long does not want the rest."""
_DATA: Final = int(FrameType.DATA)
_HEADERS: Final = int(FrameType.HEADERS)
_CONTINUATION: Final = int(FrameType.CONTINUATION)
_UNSIGNED_DIGITS: Final = 18


class Application(Protocol):
    def request(self, stream: Stream, request: Request) -> None:
        """A new stream. Nothing follows if `stream.is_remote_ended`."""

    def data(self, stream: Stream, data: bytes) -> None:
        """Data, or none with the end of the request. To be given back by `taken`."""

    def was_reset(self, stream: Stream) -> None:
        """The stream is closed, and nothing can be sent on it."""

    def drained(self) -> None:
        """The last stream is closed, after `go_away`."""


class Http2Connection:
    def __init__(
        self,
        output: Output,
        application: Application,
        limits: Http2Limits,
        monotonic: Callable[[], float],
    ) -> None:
        self._output = output
        self._application = application
        self._limits = limits
        self._idle = Allowance(
            "frames without content", limits.idle_frames, limits.idle_frames_a_second, monotonic
        )
        self._settings_allowance = Allowance(
            "SETTINGS", limits.settings_frames, limits.settings_frames_a_second, monotonic
        )
        self._resets = Allowance("resets", limits.resets, limits.resets_a_second, monotonic)
        self._fields = FieldDecoder(limits.header_table)
        self.sender = Sender(output, self._idle, self._sent_all)
        self.streams: dict[int, Stream] = {}
        self._was_reset: OrderedDict[int, None] = OrderedDict()
        self._reader = FrameReader(self._frame)
        self._headers_reader = HeadersReader(limits)
        self._expects_settings = True
        self._last = 0
        """The highest stream that the client has opened."""
        self._has_gaps = False
        """Whether the client has left numbers of streams out."""
        self._window = DEFAULT_WINDOW
        self._returned = 0
        """Bytes by which the connection's window may be reopened."""
        self._is_going_away = False
        self.is_over = False
        """Ended by GOAWAY with an error: nothing is received or sent any more."""
        self._handlers: dict[int, Callable[[int, int, bytes], None]] = {
            FrameType.PRIORITY: self._priority,
            FrameType.RST_STREAM: self._rst_stream,
            FrameType.SETTINGS: self._settings,
            FrameType.PUSH_PROMISE: self._push_promise,
            FrameType.PING: self._ping,
            FrameType.GOAWAY: self._goaway,
            FrameType.WINDOW_UPDATE: self._window_update,
        }

    @property
    def held(self) -> int:
        """Bytes of incomplete frames and header blocks."""
        return self._reader.held + self._headers_reader.held

    @property
    def is_held_back(self) -> bool:
        """Set by the application: it wants no more requests for now."""
        return self._reader.is_held_back

    @is_held_back.setter
    def is_held_back(self, value: bool) -> None:
        self._reader.is_held_back = value

    @property
    def has_backlog(self) -> bool:
        """Whether frames wait because of that: `receive(b"")` goes on with them."""
        return self._reader.has_backlog

    def start(self) -> None:
        limits = self._limits
        settings = {
            Setting.MAX_CONCURRENT_STREAMS: limits.max_streams,
            Setting.INITIAL_WINDOW_SIZE: limits.stream_window,
            Setting.MAX_HEADER_LIST_SIZE: limits.max_header_list,
        }
        if limits.header_table != 4096:
            settings[Setting.HEADER_TABLE_SIZE] = limits.header_table
        self._output.send(frame(FrameType.SETTINGS, 0, 0, encode_settings(settings)))
        more = limits.connection_window - DEFAULT_WINDOW
        if more > 0:
            self._window += more
            self._output.send(window_update(0, more))

    def go_away(self) -> None:
        """Later streams are ignored. Those that are open go on."""
        if not self._is_going_away:
            self._is_going_away = True
            self._output.send(goaway(self._last, ErrorCode.NO_ERROR))

    def tick(self) -> None:
        """Once a second: reset streams whose client takes nothing of what it has asked for."""
        for stream in list(self.streams.values()):
            if stream.pending:
                stream.stalled_seconds += 1
                if stream.stalled_seconds >= _STALL_SECONDS:
                    self.reset(stream, ErrorCode.ENHANCE_YOUR_CALM)

    # Bytes

    def receive(self, data: bytes) -> None:
        """Raises ConnectionFault, after GOAWAY was sent."""
        if self.is_over:
            return
        try:
            self._reader.feed(data)
        except ConnectionFault as fault:
            self.is_over = True
            self._reader.forget()
            self._headers_reader.forget()
            self._output.send(goaway(self._last, fault.code, fault.text))
            raise

    def _frame(self, kind: int, flags: int, id: int, payload: bytes) -> None:
        unfinished = self._headers_reader.stream
        if unfinished and (kind != _CONTINUATION or id != unfinished):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a header block is interrupted")
        if self._expects_settings:
            if kind != FrameType.SETTINGS or flags & ACK:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "the first frame is not SETTINGS")
            self._expects_settings = False
        try:
            if kind == _DATA:
                self._data(flags, id, payload)
            elif kind == _HEADERS:
                block = self._headers_reader.begin(flags, id, payload)
                if block is not None:
                    self._headers_complete(flags, id, block)
            elif kind == _CONTINUATION:
                block = self._headers_reader.go_on(flags, payload)
                if block is not None:
                    self._headers_complete(self._headers_reader.flags, id, block)
            else:
                handler = self._handlers.get(kind)
                if handler is None:
                    self._idle.take()
                else:
                    handler(flags, id, payload)
        except StreamFault as fault:
            self._stream_failed(id, fault)

    def _stream_failed(self, id: int, fault: StreamFault) -> None:
        stream = self.streams.get(id)
        if stream is None:
            self._refuse(id, fault.code)
        else:
            self._resets.take()  # a client can provoke resets instead of sending them
            self.reset(stream, fault.code)

    # Requests

    def _headers_complete(self, flags: int, id: int, block: bytes) -> None:
        headers = self._fields.decode(block)  # always: later blocks build on it
        if id > self._last:
            if not self._is_going_away:
                self._open(flags, id, headers)
            return
        stream = self.streams.get(id)
        if stream is None:
            if id in self._was_reset:
                self._idle.take()
                return
            code = ErrorCode.PROTOCOL_ERROR if self._has_gaps else ErrorCode.STREAM_CLOSED
            raise ConnectionFault(code, f"HEADERS on the stream {id}, which is closed")
        if stream.is_remote_ended:
            raise StreamFault(ErrorCode.STREAM_CLOSED, "HEADERS after the end")
        if not flags & END_STREAM:
            raise malformed("trailers that do not end the stream")
        check_size(headers, self._limits.max_header_list)
        check_trailers(headers)
        self._request_ended(stream)

    def _open(self, flags: int, id: int, headers: HeaderList) -> None:
        self._has_gaps = self._has_gaps or id != self._last + (2 if self._last else 1)
        self._last = id
        if len(self.streams) >= self._limits.max_streams:
            self._refuse(id, ErrorCode.REFUSED_STREAM)
            return
        check_size(headers, self._limits.max_header_list)
        request = read_request(headers)
        stream = Stream(id, self._limits.stream_window, self.sender.initial_window)
        length = request.fields.get(b"content-length")
        if length is not None:
            if not length.isdigit() or len(length) > _UNSIGNED_DIGITS:
                raise malformed("content-length is not a number")
            stream.expected = int(length)
        if flags & END_STREAM:
            stream.is_remote_ended = True
            if stream.expected > 0:
                raise malformed("content-length without content")
        self.streams[id] = stream
        self._idle.earn(_EARNED_BY_REQUEST)
        self._application.request(stream, request)

    def _data(self, flags: int, id: int, payload: bytes) -> None:
        size = len(payload)
        self._window -= size
        if self._window < 0:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "more than the connection's window")
        # What a stream holds is bounded by its own window, so this one need not wait for the application.
        self._returned += size
        if self._returned * 2 >= self._limits.connection_window:
            self._window += self._returned
            self._output.send(window_update(0, self._returned))
            self._returned = 0
        stream = self.streams.get(id)
        if stream is None:
            self._data_of_none(id)
            return
        if stream.is_remote_ended:
            raise StreamFault(ErrorCode.STREAM_CLOSED, "DATA after the end")
        stream.receive_window -= size
        if stream.receive_window < 0:
            raise StreamFault(ErrorCode.FLOW_CONTROL_ERROR, "more than the stream's window")
        if flags & PADDED:
            payload = unpadded(payload)
            self.taken(stream, size - len(payload))
        if stream.expected >= 0:
            stream.expected -= len(payload)
            if stream.expected < 0:
                raise malformed("more than content-length")
        if flags & END_STREAM:
            self._request_ended(stream, payload)
        elif payload:
            self._application.data(stream, payload)
        else:
            self._idle.take()

    def _data_of_none(self, id: int) -> None:
        if not id or id > self._last:
            if id & 1 and self._is_going_away:
                return
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"DATA on the stream {id}, which is idle")
        if id not in self._was_reset:
            raise ConnectionFault(ErrorCode.STREAM_CLOSED, f"DATA on the stream {id}, which is closed")
        self._idle.take()

    def _request_ended(self, stream: Stream, data: bytes = b"") -> None:
        if stream.expected > 0:
            raise malformed("less than content-length")
        stream.is_remote_ended = True
        self._application.data(stream, data)

    def taken(self, stream: Stream, size: int) -> None:
        """The application has taken data of the stream: the client may send as much again."""
        stream.taken += size
        if stream.taken * 2 >= self._limits.stream_window and not stream.is_remote_ended:
            self.extend(stream, stream.taken)
            stream.taken = 0

    def extend(self, stream: Stream, size: int) -> None:
        """Open the stream's window beyond what was taken: for a message that is larger than it."""
        if not stream.is_closed and not self.is_over:
            stream.receive_window += size
            self._output.send(window_update(stream.id, size))

    # Ends of streams

    def reset(self, stream: Stream, code: ErrorCode) -> None:
        """Nothing more is sent or received on the stream."""
        if not stream.is_closed:
            self._output.send(rst_stream(stream.id, code))
            self._closed_by_reset(stream)

    def refuse(self, stream: Stream) -> None:
        """The application has done nothing for the stream: the client may send the request again."""
        self._resets.take()
        self.reset(stream, ErrorCode.REFUSED_STREAM)

    def _refuse(self, id: int, code: ErrorCode) -> None:
        """A stream that was never open for the application."""
        self._resets.take()
        self._output.send(rst_stream(id, code))
        self._remember_reset(id)

    def _closed_by_reset(self, stream: Stream) -> None:
        stream.is_closed = True
        del self.streams[stream.id]
        self.sender.forget(stream)
        self._remember_reset(stream.id)
        self._application.was_reset(stream)
        self._check_drained()

    def _remember_reset(self, id: int) -> None:
        self._was_reset[id] = None
        if len(self._was_reset) > _REMEMBERED_RESETS:
            self._was_reset.popitem(last=False)

    def _sent_all(self, stream: Stream) -> None:
        stream.is_closed = True
        del self.streams[stream.id]
        if not stream.is_remote_ended:  # the client need not send the rest
            self._output.send(rst_stream(stream.id, ErrorCode.NO_ERROR))
            self._remember_reset(stream.id)
        self._check_drained()

    def _check_drained(self) -> None:
        if self._is_going_away and not self.streams:
            self._application.drained()

    # Other frames

    def _rst_stream(self, flags: int, id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"RST_STREAM of {len(payload)} bytes")
        if not id or (id > self._last and not self._is_going_away):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"RST_STREAM on the stream {id}, which is idle")
        stream = self.streams.get(id)
        if stream is None:
            self._idle.take()
        else:
            self._resets.take()
            self._closed_by_reset(stream)

    def _settings(self, flags: int, id: int, payload: bytes) -> None:
        if id:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"SETTINGS on the stream {id}")
        self._settings_allowance.take()
        if flags & ACK:
            if payload:
                raise ConnectionFault(
                    ErrorCode.FRAME_SIZE_ERROR, "an acknowledgement of SETTINGS with content"
                )
            return
        settings = list(decode_settings(payload))
        # First: what a larger window lets through must not come before the client knows that it is in force.
        self._output.send(frame(FrameType.SETTINGS, ACK, 0))
        for name, value in settings:
            if name == Setting.INITIAL_WINDOW_SIZE:
                self.sender.set_initial_window(value, list(self.streams.values()))
            elif name == Setting.HEADER_TABLE_SIZE:
                self.sender.table_was_limited()

    def _ping(self, flags: int, id: int, payload: bytes) -> None:
        if id:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"PING on the stream {id}")
        if len(payload) != 8:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"PING of {len(payload)} bytes")
        self._idle.take()
        if not flags & ACK:
            self._output.send(frame(FrameType.PING, ACK, 0, payload))

    def _window_update(self, flags: int, id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"WINDOW_UPDATE of {len(payload)} bytes")
        self._idle.take()
        increment = _U32.unpack(payload)[0] & STREAM_BITS
        if not id:
            if not increment:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE by nothing")
            self.sender.open_window(increment)
            return
        stream = self.streams.get(id)
        if stream is not None:
            if not increment:
                raise StreamFault(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE by nothing")
            self.sender.open_stream_window(stream, increment)
        elif id > self._last and not self._is_going_away:
            raise ConnectionFault(
                ErrorCode.PROTOCOL_ERROR, f"WINDOW_UPDATE on the stream {id}, which is idle"
            )

    def _priority(self, flags: int, id: int, payload: bytes) -> None:
        if not id:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "PRIORITY on the stream 0")
        self._idle.take()
        if len(payload) != 5:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"PRIORITY of {len(payload)} bytes")

    def _goaway(self, flags: int, id: int, payload: bytes) -> None:
        # The client opens no more streams, and closes the connection when it wants to.
        if id:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"GOAWAY on the stream {id}")
        if len(payload) < 8:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"GOAWAY of {len(payload)} bytes")
        self._idle.take()

    def _push_promise(self, flags: int, id: int, payload: bytes) -> None:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "PUSH_PROMISE from a client")
