"""The library h2 as a client: whatever it does, it finds nothing wrong, and gets what it has sent."""

from dataclasses import dataclass, field

import h2.config
import h2.connection
import h2.events
from h2.settings import SettingCodes
from hypothesis import example, given
from hypothesis import strategies as st

from posthouse.protocols.grpc.http2.connection import Http2Connection
from posthouse.protocols.grpc.http2.header_blocks import Request
from posthouse.protocols.grpc.http2.limits import Http2Limits
from posthouse.protocols.grpc.http2.streams import Stream
from tests.protocols.grpc.http2.peer import REQUEST, Output

HEAD, END = b"\x88", b"\x00\x0bgrpc-status\x010"


class Echo:
    """Sends back what it gets, all at once or as it arrives."""

    def __init__(self, output: Output) -> None:
        self.http2 = Http2Connection(output, self, Http2Limits(stream_window=3000), lambda: 0.0)

    def request(self, stream: Stream, request: Request) -> None:
        stream.call = (request.fields[b"x-mode"], bytearray())
        if stream.call[0] == b"streaming":
            self.http2.sender.headers(stream, HEAD)
        if stream.is_remote_ended:
            self.data(stream, b"")

    def data(self, stream: Stream, data: bytes) -> None:
        mode, received = stream.call
        received += data
        self.http2.taken(stream, len(data))
        sender = self.http2.sender
        if mode == b"streaming":
            if data:
                sender.data(stream, data)
            if stream.is_remote_ended:
                sender.end(stream, END)
        elif stream.is_remote_ended:
            sender.respond(stream, HEAD, b"=" + bytes(received), END)

    def was_reset(self, stream: Stream) -> None:
        stream.call = None

    def drained(self) -> None:
        """Nothing is to be closed."""


@dataclass
class Sent:
    mode: str
    left: bytes
    expected: bytes
    got: bytearray = field(default_factory=bytearray)
    has_ended: bool = False
    is_done: bool = False
    is_reset: bool = False


class Client:
    def __init__(self) -> None:
        self.output = Output()
        self.echo = Echo(self.output)
        self.echo.http2.start()
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        self.h2.initiate_connection()
        self.streams: dict[int, Sent] = {}
        self.exchange()

    def exchange(self, piece: int = 1 << 20) -> None:
        """Until neither side has more to say."""
        while data := self.h2.data_to_send():
            for start in range(0, len(data), piece):
                self.echo.http2.receive(data[start : start + piece])
            answer, self.output.sent = bytes(self.output.sent), bytearray()
            for event in self.h2.receive_data(answer):
                self.take(event)

    def take(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.DataReceived):
            self.streams[event.stream_id].got += event.data
        elif isinstance(event, h2.events.StreamEnded):
            self.streams[event.stream_id].is_done = True
        elif isinstance(event, h2.events.TrailersReceived):
            assert (b"grpc-status", b"0") in [tuple(each) for each in event.headers]
        else:
            assert not isinstance(event, h2.events.ConnectionTerminated | h2.events.StreamReset)

    def open(self, mode: str, size: int, pad: int) -> None:
        stream = self.h2.get_next_available_stream_id()
        body = bytes((stream + each) % 251 for each in range(size))
        expected = body if mode == "streaming" else b"=" + body
        self.streams[stream] = Sent(mode, body, expected)
        headers = [*REQUEST, ("x-mode", mode), ("x-id", str(stream) * (1 + pad))]
        self.h2.send_headers(stream, headers, end_stream=False)

    def send(self, stream: int, most: int, padding: int | None) -> None:
        sent = self.streams[stream]
        extra = 0 if padding is None else padding + 1
        room = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size) - extra
        size = min(most, len(sent.left), max(room, 0))
        if sent.has_ended or sent.is_reset or room < 0 or (size == 0 and sent.left):
            return
        sent.has_ended = size == len(sent.left)
        part, sent.left = sent.left[:size], sent.left[size:]
        self.h2.send_data(stream, part, end_stream=sent.has_ended, pad_length=padding)

    def finish(self) -> None:
        self.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1 << 20})
        self.h2.increment_flow_control_window(1 << 24)
        self.exchange()
        for stream, sent in self.streams.items():
            while not sent.has_ended and not sent.is_reset:
                self.send(stream, 1 << 20, None)
                self.exchange()
            if not sent.is_reset:
                assert sent.is_done and bytes(sent.got) == sent.expected
        assert not self.echo.http2.streams and self.echo.http2.sender.pending_bytes == 0


modes = st.sampled_from(["unary", "streaming"])
steps = st.one_of(
    st.tuples(
        st.just("open"), st.sampled_from(["unary", "streaming"]), st.integers(0, 9000), st.integers(0, 99)
    ),
    st.tuples(st.just("send"), st.integers(0, 9), st.integers(0, 5000), st.none() | st.integers(0, 200)),
    st.tuples(st.just("window"), st.integers(0, 9), st.integers(1, 5000), st.none()),
    st.tuples(st.just("initial"), st.integers(0, 20_000), st.none(), st.none()),
    st.tuples(st.just("table"), st.sampled_from([0, 100, 4096]), st.none(), st.none()),
    st.tuples(st.just("reset"), st.integers(0, 9), st.none(), st.none()),
    st.tuples(st.just("ping"), st.none(), st.none(), st.none()),
    st.tuples(st.just("congestion"), st.booleans(), st.none(), st.none()),
)


@given(st.lists(steps, max_size=40), st.integers(1, 200))
@example([("open", "unary", 0, 0), ("initial", 0, 0, 0), ("send", 0, 0, None)], 1)  # a window that grows
def test_whatever_a_client_does(todo: list[tuple[str, int, int, int]], piece: int) -> None:
    client = Client()
    for what, first, second, third in todo:
        open_streams = [
            each for each, sent in client.streams.items() if not sent.is_done and not sent.is_reset
        ]
        if what == "open":
            client.open(str(first), second, third)
        elif what == "initial":
            client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: first})
        elif what == "table":
            client.h2.update_settings({SettingCodes.HEADER_TABLE_SIZE: first})
        elif what == "ping":
            client.h2.ping(bytes(8))
        elif what == "congestion":
            client.output.is_congested = bool(first)
            client.echo.http2.sender.pump()
        elif open_streams:
            stream = open_streams[first % len(open_streams)]
            if what == "send":
                client.send(stream, second, third)
            elif what == "window":
                client.h2.increment_flow_control_window(second, stream)
            else:
                client.h2.reset_stream(stream)
                client.streams[stream].is_reset = True
        client.exchange(piece)
    client.output.is_congested = False
    client.echo.http2.sender.pump()
    client.finish()
