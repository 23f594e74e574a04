"""What is sent on streams, under the client's windows: one frame of each stream in turn.

DATA waits in its stream while the window of the stream or of the connection is used up, or the client does
not read from its socket. The application bounds that by `Sender.pending_bytes` and `Stream.drained`.
"""

from collections.abc import Callable
from typing import Final, Protocol

from posthouse.protocols.grpc.http2.errors import ConnectionFault, ErrorCode, StreamFault
from posthouse.protocols.grpc.http2.frames import (
    DEFAULT_FRAME,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    FRAME_HEAD,
    LARGEST_WINDOW,
    FrameType,
    data_head,
    frame,
)
from posthouse.protocols.grpc.http2.header_blocks import NO_DYNAMIC_TABLE
from posthouse.protocols.grpc.http2.limits import Allowance
from posthouse.protocols.grpc.http2.streams import Stream

_EARNED_BY_FRAME: Final = 4
"""Frames that a client may send without content for each DATA of ours: WINDOW_UPDATEs of both kinds."""
_LAST: Final = END_HEADERS | END_STREAM


class Output(Protocol):
    """Where bytes go: the outbox of a connection."""

    @property
    def is_congested(self) -> bool:
        """The client does not read. Only what is short may be sent."""

    def send(self, frame: bytes | memoryview) -> None: ...


class Sender:
    __slots__ = (
        "_closed",
        "_idle",
        "_initial_window",
        "_output",
        "_ready",
        "_table_update",
        "pending_bytes",
        "window",
    )

    def __init__(self, output: Output, idle: Allowance, closed: Callable[[Stream], None]) -> None:
        """`closed` is called with a stream whose last byte was sent."""
        self._output = output
        self._idle = idle
        self._closed = closed
        self._initial_window = DEFAULT_WINDOW
        self._ready: dict[Stream, None] = {}
        """Streams that may send, but for the window of the connection and its congestion."""
        self._table_update = b""
        self.window = DEFAULT_WINDOW
        self.pending_bytes = 0

    @property
    def initial_window(self) -> int:
        return self._initial_window

    def respond(self, stream: Stream, head: bytes, body: bytes, end: bytes) -> None:
        """A whole response: header block, DATA, trailer block."""
        size = len(body)
        if (
            size > self.window
            or size > stream.send_window
            or size > DEFAULT_FRAME
            or self._ready
            or self._table_update
            or self._output.is_congested
        ):
            self.headers(stream, head)
            self.data(stream, body)
            self.end(stream, end)
            return
        self.window -= size
        id, pack = stream.id, FRAME_HEAD.pack
        ends = len(end)
        self._output.send(
            frame(1, END_HEADERS, id, head)
            + pack(size >> 8, size & 0xFF, 0, 0, id)
            + body
            + pack(ends >> 8, ends & 0xFF, 1, _LAST, id)
            + end
        )
        self._idle.earn(_EARNED_BY_FRAME)
        stream.is_local_ended = True
        self._closed(stream)

    def headers(self, stream: Stream, block: bytes) -> None:
        """Of a response, at once: they need no window."""
        self._output.send(frame(FrameType.HEADERS, END_HEADERS, stream.id, self._updated(block)))

    def data(self, stream: Stream, data: bytes) -> None:
        stream.pending.append(memoryview(data))
        stream.pending_bytes += len(data)
        self.pending_bytes += len(data)
        if stream.send_window > 0:
            self._ready[stream] = None
            self.pump()

    def end(self, stream: Stream, block: bytes) -> None:
        """Trailers, or the only headers of a response: after all that is pending."""
        stream.is_local_ended = True
        stream.end_block = block
        if not stream.pending:
            self._end_now(stream)

    def _end_now(self, stream: Stream) -> None:
        block, stream.end_block = self._updated(stream.end_block or b""), None
        self._output.send(frame(FrameType.HEADERS, _LAST, stream.id, block))
        self._closed(stream)

    def _updated(self, block: bytes) -> bytes:
        if self._table_update:
            block, self._table_update = self._table_update + block, b""
        return block

    def pump(self) -> None:
        """Send what the windows and the socket take."""
        ready, output = self._ready, self._output
        while ready and self.window > 0 and not output.is_congested:
            stream = next(iter(ready))
            del ready[stream]
            self._send_frame(stream)

    def _send_frame(self, stream: Stream) -> None:
        room = min(stream.send_window, self.window, DEFAULT_FRAME)
        if room <= 0:
            return  # until its window grows
        pending = stream.pending
        chunk = pending[0]
        size = len(chunk)
        if size <= room:
            pending.popleft()
        else:
            pending[0] = chunk[room:]
            chunk, size = chunk[:room], room
        stream.send_window -= size
        self.window -= size
        stream.pending_bytes -= size
        self.pending_bytes -= size
        stream.stalled_seconds = 0
        self._output.send(data_head(size, 0, stream.id))
        self._output.send(chunk)
        self._idle.earn(_EARNED_BY_FRAME)
        if pending:
            if stream.send_window > 0:
                self._ready[stream] = None
        elif stream.end_block is not None:
            self._end_now(stream)
        elif stream.drained is not None:
            stream.drained()

    def forget(self, stream: Stream) -> None:
        """The stream was reset."""
        self._ready.pop(stream, None)
        self.pending_bytes -= stream.pending_bytes
        stream.pending_bytes = 0
        stream.pending.clear()
        stream.end_block = None

    # What the client allows

    def open_window(self, increment: int) -> None:
        """Raises ConnectionFault."""
        if self.window + increment > LARGEST_WINDOW:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "the connection's window is too large")
        self.window += increment
        self.pump()

    def open_stream_window(self, stream: Stream, increment: int) -> None:
        """Raises StreamFault."""
        if stream.send_window + increment > LARGEST_WINDOW:
            raise StreamFault(ErrorCode.FLOW_CONTROL_ERROR, "the stream's window is too large")
        stream.send_window += increment
        self._may_go_on(stream)
        self.pump()

    def set_initial_window(self, size: int, streams: list[Stream]) -> None:
        """Raises ConnectionFault."""
        change = size - self._initial_window
        self._initial_window = size
        for stream in streams:
            if stream.send_window + change > LARGEST_WINDOW:
                raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "a stream's window is too large")
            stream.send_window += change
            self._may_go_on(stream)
        self.pump()

    def table_was_limited(self) -> None:
        """The client has set the size of the table, which is not used."""
        self._table_update = NO_DYNAMIC_TABLE

    def _may_go_on(self, stream: Stream) -> None:
        if stream.pending and stream.send_window > 0:
            self._ready[stream] = None
