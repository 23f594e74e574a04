"""One connection, frame by frame: what RFC 9113 wants, and which error each violation is."""

from collections.abc import Callable
from struct import pack

import pytest

from posthouse.protocols.grpc.http2.errors import ConnectionFault, ErrorCode
from posthouse.protocols.grpc.http2.frames import (
    ACK,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    LARGEST_WINDOW,
    PADDED,
    PREFACE,
    PRIORITY,
    FrameType,
    frame,
)
from tests.protocols.grpc.http2.peer import REQUEST, Headers, Peer

LAST = END_HEADERS | END_STREAM


@pytest.fixture
def peer() -> Peer:
    return Peer()


def code_of(send: Callable[[], object], peer: Peer) -> ErrorCode:
    """Of the connection error, as it is raised and as the client is told."""
    with pytest.raises(ConnectionFault) as caught:
        send()
    kind, _, stream, payload = peer.frames()[-1]
    assert (kind, stream) == (FrameType.GOAWAY, 0)
    assert int.from_bytes(payload[4:8]) == caught.value.code
    assert peer.http2.is_over
    peer.send(b"more")  # is ignored
    assert peer.frames() == []
    return caught.value.code


def reset_of(peer: Peer, stream: int) -> ErrorCode:
    """Of the stream error that the client is told last."""
    kind, _, found, payload = peer.frames()[-1]
    assert (kind, found) == (FrameType.RST_STREAM, stream)
    return ErrorCode(int.from_bytes(payload))


def test_greetings() -> None:
    peer = Peer(greets=False, max_streams=7, stream_window=70_000, max_header_list=8000)
    settings, window = peer.frames()
    assert settings[:3] == (FrameType.SETTINGS, 0, 0)
    assert settings[3] == pack(">HIHIHI", 3, 7, 4, 70_000, 6, 8000)
    assert window[:3] == (FrameType.WINDOW_UPDATE, 0, 0)
    for byte in PREFACE + frame(FrameType.SETTINGS, 0, 0, pack(">HIHI", 0xABCD, 5, 1, 0)):
        peer.send(bytes((byte,)))
    assert peer.frames() == [(FrameType.SETTINGS, ACK, 0, b"")]
    peer.frame(FrameType.SETTINGS, ACK, 0)
    assert peer.frames() == []


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/1",
        b"\x16\x03\x01",
        PREFACE + frame(FrameType.PING, 0, 0, bytes(8)),
        PREFACE + frame(FrameType.SETTINGS, ACK, 0),
    ],
)
def test_no_greetings(data: bytes) -> None:
    peer = Peer(greets=False)
    peer.frames()
    assert code_of(lambda: peer.send(data), peer) == ErrorCode.PROTOCOL_ERROR


def test_a_request_and_its_response(peer: Peer) -> None:
    peer.headers(1)
    request = peer.app.requests[1]
    assert (request.method, request.path) == (b"POST", b"/test/echo")
    assert request.fields == {b"content-type": b"application/grpc", b"te": b"trailers"}
    peer.data(1, b"hello ")
    peer.data(1, b"world", END_STREAM)
    assert peer.app.data_of[1] == b"hello world" and peer.app.ended == [1]
    peer.http2.sender.respond(peer.app.streams[1], b"\x88", b"answer", b"\x00\x01a\x01b")
    assert peer.frames() == [
        (FrameType.HEADERS, END_HEADERS, 1, b"\x88"),
        (FrameType.DATA, 0, 1, b"answer"),
        (FrameType.HEADERS, LAST, 1, b"\x00\x01a\x01b"),
    ]
    assert not peer.http2.streams


@pytest.mark.parametrize("cut", [1, 3, 9, 10, 1000])
def test_frames_however_they_are_cut(cut: int) -> None:
    peer = Peer()
    block = peer.encoder.encode(REQUEST)
    sent = (
        frame(FrameType.HEADERS, PADDED | PRIORITY, 1, b"\x03" + bytes(5) + block[:4] + bytes(3))
        + frame(FrameType.CONTINUATION, 0, 1, block[4:6])
        + frame(FrameType.CONTINUATION, END_HEADERS, 1, block[6:])
        + frame(0x77, 0xFF, 1, b"unknown")
        + frame(FrameType.PRIORITY, 0, 9, bytes(5))
        + frame(FrameType.DATA, PADDED, 1, b"\x05abc" + bytes(5))
        + frame(FrameType.DATA, PADDED | END_STREAM, 1, b"\x00def")
    )
    for at in range(0, len(sent), cut):
        peer.send(sent[at : at + cut])
    assert peer.app.data_of == {1: b"abcdef"} and peer.app.ended == [1]
    assert peer.http2.held == 0


def test_trailers_of_a_request(peer: Peer) -> None:
    peer.headers(1)
    peer.headers(1, [("x-check", "1")], flags=LAST)
    assert peer.app.ended == [1]


def test_pings_are_answered_however_many(peer: Peer) -> None:
    for each in range(5000):
        peer.frame(FrameType.PING, 0, 0, each.to_bytes(8))
        assert peer.frames() == [(FrameType.PING, ACK, 0, each.to_bytes(8))]
    peer.frame(FrameType.PING, ACK, 0, bytes(8))
    assert peer.frames() == []


CONNECTION_ERRORS: dict[str, tuple[ErrorCode, bytes]] = {
    "too large": (ErrorCode.FRAME_SIZE_ERROR, frame(0, 0, 1, bytes(16_385))),
    "HEADERS on 0": (ErrorCode.PROTOCOL_ERROR, frame(1, LAST, 0, b"\x82")),
    "HEADERS on 2": (ErrorCode.PROTOCOL_ERROR, frame(1, LAST, 2, b"\x82")),
    "HEADERS on a closed stream": (ErrorCode.STREAM_CLOSED, frame(1, LAST, 1, b"\x82")),
    "HEADERS with too much padding": (ErrorCode.PROTOCOL_ERROR, frame(1, LAST | PADDED, 5, b"\x05\x82")),
    "HEADERS without padding": (ErrorCode.FRAME_SIZE_ERROR, frame(1, LAST | PADDED, 5)),
    "HEADERS without priority": (ErrorCode.FRAME_SIZE_ERROR, frame(1, LAST | PRIORITY, 5, b"\x82")),
    "HEADERS that are none": (ErrorCode.COMPRESSION_ERROR, frame(1, LAST, 5, b"\xff\xff")),
    "DATA on 0": (ErrorCode.PROTOCOL_ERROR, frame(0, 0, 0, b"x")),
    "DATA on an idle stream": (ErrorCode.PROTOCOL_ERROR, frame(0, 0, 99, b"x")),
    "DATA on a closed stream": (ErrorCode.STREAM_CLOSED, frame(0, 0, 1, b"x")),
    "DATA with too much padding": (ErrorCode.PROTOCOL_ERROR, frame(0, PADDED, 3, b"\x03ab")),
    "PRIORITY on 0": (ErrorCode.PROTOCOL_ERROR, frame(2, 0, 0, bytes(5))),
    "RST_STREAM on 0": (ErrorCode.PROTOCOL_ERROR, frame(3, 0, 0, bytes(4))),
    "RST_STREAM on an idle stream": (ErrorCode.PROTOCOL_ERROR, frame(3, 0, 99, bytes(4))),
    "RST_STREAM of 3 bytes": (ErrorCode.FRAME_SIZE_ERROR, frame(3, 0, 3, bytes(3))),
    "SETTINGS on 1": (ErrorCode.PROTOCOL_ERROR, frame(4, 0, 1)),
    "SETTINGS of 5 bytes": (ErrorCode.FRAME_SIZE_ERROR, frame(4, 0, 0, bytes(5))),
    "SETTINGS acknowledged with content": (ErrorCode.FRAME_SIZE_ERROR, frame(4, ACK, 0, bytes(6))),
    "SETTINGS with a push of 2": (ErrorCode.PROTOCOL_ERROR, frame(4, 0, 0, pack(">HI", 2, 2))),
    "SETTINGS with a large window": (
        ErrorCode.FLOW_CONTROL_ERROR,
        frame(4, 0, 0, pack(">HI", 4, LARGEST_WINDOW + 1)),
    ),
    "SETTINGS with small frames": (ErrorCode.PROTOCOL_ERROR, frame(4, 0, 0, pack(">HI", 5, 16_383))),
    "SETTINGS with large frames": (ErrorCode.PROTOCOL_ERROR, frame(4, 0, 0, pack(">HI", 5, 1 << 24))),
    "PUSH_PROMISE": (ErrorCode.PROTOCOL_ERROR, frame(5, LAST, 3, bytes(5))),
    "PING on 1": (ErrorCode.PROTOCOL_ERROR, frame(6, 0, 1, bytes(8))),
    "PING of 7 bytes": (ErrorCode.FRAME_SIZE_ERROR, frame(6, 0, 0, bytes(7))),
    "GOAWAY on 1": (ErrorCode.PROTOCOL_ERROR, frame(7, 0, 1, bytes(8))),
    "GOAWAY of 7 bytes": (ErrorCode.FRAME_SIZE_ERROR, frame(7, 0, 0, bytes(7))),
    "WINDOW_UPDATE of 3 bytes": (ErrorCode.FRAME_SIZE_ERROR, frame(8, 0, 0, bytes(3))),
    "WINDOW_UPDATE by 0": (ErrorCode.PROTOCOL_ERROR, frame(8, 0, 0, bytes(4))),
    "WINDOW_UPDATE on an idle stream": (ErrorCode.PROTOCOL_ERROR, frame(8, 0, 99, pack(">I", 1))),
    "WINDOW_UPDATE of too much": (ErrorCode.FLOW_CONTROL_ERROR, frame(8, 0, 0, pack(">I", LARGEST_WINDOW))),
    "CONTINUATION alone": (ErrorCode.PROTOCOL_ERROR, frame(9, END_HEADERS, 5, b"\x82")),
    "CONTINUATION of another": (
        ErrorCode.PROTOCOL_ERROR,
        frame(1, 0, 5, b"\x82") + frame(9, END_HEADERS, 7, b"\x82"),
    ),
    "HEADERS interrupted": (ErrorCode.PROTOCOL_ERROR, frame(1, 0, 5, b"\x82") + frame(6, 0, 0, bytes(8))),
}


@pytest.mark.parametrize("name", CONNECTION_ERRORS)
def test_connection_errors(peer: Peer, name: str) -> None:
    """Stream 1 is closed, stream 3 is open."""
    peer.headers(1, flags=LAST)
    peer.http2.sender.end(peer.app.streams[1], b"\x88")
    peer.headers(3)
    code, sent = CONNECTION_ERRORS[name]
    assert code_of(lambda: peer.send(sent), peer) == code


def test_numbers_of_streams_that_were_left_out(peer: Peer) -> None:
    peer.headers(5, flags=LAST)
    assert code_of(lambda: peer.headers(3), peer) == ErrorCode.PROTOCOL_ERROR


STREAM_ERRORS: dict[str, tuple[ErrorCode, bytes]] = {
    "WINDOW_UPDATE by 0": (ErrorCode.PROTOCOL_ERROR, frame(8, 0, 1, bytes(4))),
    "WINDOW_UPDATE of too much": (ErrorCode.FLOW_CONTROL_ERROR, frame(8, 0, 1, pack(">I", LARGEST_WINDOW))),
    "trailers without an end": (ErrorCode.PROTOCOL_ERROR, frame(1, END_HEADERS, 1, b"\x00\x01a\x01b")),
    "trailers with a pseudo-header": (ErrorCode.PROTOCOL_ERROR, frame(1, LAST, 1, b"\x84")),
    "more than the window": (ErrorCode.FLOW_CONTROL_ERROR, frame(0, 0, 1, bytes(16_384)) * 5),
}


@pytest.mark.parametrize("name", STREAM_ERRORS)
def test_stream_errors(peer: Peer, name: str) -> None:
    peer.headers(1)
    code, sent = STREAM_ERRORS[name]
    peer.send(sent)
    assert reset_of(peer, 1) == code
    assert peer.app.resets == [1] and not peer.http2.streams
    peer.data(1, b"on its way")  # the client has not seen the reset
    peer.headers(1, [("a", "b")], flags=LAST)
    peer.window(1, 1)
    peer.reset(1)
    peer.headers(3, flags=LAST)
    assert peer.app.ended == [3]


def test_frames_after_the_end_of_a_request(peer: Peer) -> None:
    peer.headers(1, flags=LAST)
    peer.data(1, b"x")
    assert reset_of(peer, 1) == ErrorCode.STREAM_CLOSED
    peer.headers(3, flags=LAST)
    peer.headers(3, [("a", "b")], flags=LAST)
    assert reset_of(peer, 3) == ErrorCode.STREAM_CLOSED


def changed(name: str, value: str | None) -> Headers:
    headers = [(each, found) for each, found in REQUEST if each != name]
    if value is None:
        return headers
    return [(name, value), *headers] if name.startswith(":") else [*headers, (name, value)]


@pytest.mark.parametrize(
    "headers",
    [
        changed(":method", None),
        changed(":path", None),
        changed(":path", ""),
        changed(":scheme", None),
        [*REQUEST, (":authority", "late")],
        [*REQUEST, (":path", "/again")],
        [*changed(":authority", None), (":authority", "late")],
        [(":status", "200"), *REQUEST],
        changed("Upper", "x"),
        changed("", "x"),
        changed("sp ace", "x"),
        changed("col:on", "x"),
        changed("connection", "close"),
        changed("transfer-encoding", "chunked"),
        changed("te", "gzip"),
        changed("x", "a\r\nb"),
        changed("x", "a\0b"),
        changed("x", " a"),
        changed("x", "a\t"),
        [*REQUEST, ("x", "1"), ("x", "2\n")],
        changed("content-length", "x"),
        changed("content-length", "9" * 30),
    ],
)
def test_malformed_requests(peer: Peer, headers: Headers) -> None:
    for stream in (1, 3):  # what is remembered of names does not make them better
        peer.headers(stream, headers, flags=LAST)
        assert reset_of(peer, stream) == ErrorCode.PROTOCOL_ERROR
    assert not peer.app.requests
    peer.headers(5, flags=LAST)
    assert list(peer.app.requests) == [5]


def test_good_requests_that_look_odd(peer: Peer) -> None:
    headers = [
        *changed(":authority", None),
        ("x", ""),
        ("x", "b"),
        ("cookie", "a"),
        ("cookie", "b"),
        ("y", "é"),
    ]
    peer.headers(1, headers, flags=LAST)
    fields = peer.app.requests[1].fields
    assert fields[b"x"] == b",b" and fields[b"cookie"] == b"a; b" and fields[b"y"] == "é".encode()


@pytest.mark.parametrize(("length", "sent"), [(5, b"1234"), (5, b"123456"), (1, b"")])
def test_lengths_that_lie(peer: Peer, length: int, sent: bytes) -> None:
    peer.headers(1, changed("content-length", str(length)))
    peer.data(1, sent, END_STREAM)
    assert reset_of(peer, 1) == ErrorCode.PROTOCOL_ERROR
    peer.headers(3, changed("content-length", "4"))
    peer.data(3, b"1234", END_STREAM)
    assert peer.app.ended == [3]


# Windows


def test_a_window_reopens_as_the_application_takes(peer: Peer) -> None:
    peer.headers(1)
    for _ in range(4):
        peer.data(1, bytes(16_384))
    assert peer.frames() == []
    stream = peer.app.streams[1]
    assert stream.receive_window == 0
    peer.http2.taken(stream, 10_000)
    assert peer.frames() == []
    peer.http2.taken(stream, 30_000)
    assert peer.frames() == [(FrameType.WINDOW_UPDATE, 0, 1, pack(">I", 40_000))]
    assert stream.receive_window == 40_000


def test_the_connection_goes_on_while_streams_are_not_read() -> None:
    peer = Peer(connection_window=100_000)
    for stream in range(1, 41, 2):
        peer.headers(stream)
        for _ in range(4):
            peer.data(stream, bytes(16_384))
    opened = sum(int.from_bytes(each[3]) for each in peer.frames() if each[:3] == (8, 0, 0))
    assert opened >= 20 * 65_536 - 100_000


def test_more_than_the_window_of_the_connection() -> None:
    # The connection's window reopens by itself, so only one that is smaller than a frame can be exceeded.
    peer = Peer()
    peer.http2._window = 10
    peer.headers(1)
    assert code_of(lambda: peer.data(1, bytes(11)), peer) == ErrorCode.FLOW_CONTROL_ERROR


def test_data_waits_for_windows_of_the_client(peer: Peer) -> None:
    peer.settings((4, 10))
    peer.headers(1, flags=LAST)
    peer.headers(3, flags=LAST)
    peer.frames()
    one, three = peer.app.streams[1], peer.app.streams[3]
    sender = peer.http2.sender
    sender.respond(one, b"\x88", b"a" * 25, b"\x89")
    sender.headers(three, b"\x88")
    sender.data(three, b"b" * 15)
    assert [each[2:] for each in peer.frames()] == [
        (1, b"\x88"),
        (1, b"a" * 10),
        (3, b"\x88"),
        (3, b"b" * 10),
    ]
    assert sender.pending_bytes == 20
    peer.window(1, 10)
    assert peer.frames() == [(0, 0, 1, b"a" * 10)]
    peer.settings((4, 0))  # 10 less for both: below nothing
    assert three.send_window == -10
    peer.window(3, 12)
    assert peer.frames()[1:] == [(0, 0, 3, b"b" * 2)]
    peer.settings((4, 100))
    frames = peer.frames()
    assert sorted(each[2:] for each in frames if each[0] == 0) == [(1, b"a" * 5), (3, b"b" * 3)]
    assert (1, LAST, 1, b"\x89") in frames
    assert sender.pending_bytes == 0 and list(peer.http2.streams) == [3]


def test_streams_take_turns(peer: Peer) -> None:
    for stream in (1, 3, 5):
        peer.headers(stream, flags=LAST)
    peer.settings((4, LARGEST_WINDOW))
    sender = peer.http2.sender
    sender.window = 0
    peer.frames()
    for stream in (1, 3, 5):
        sender.respond(peer.app.streams[stream], b"\x88", bytes(40_000), b"\x89")
    peer.window(0, LARGEST_WINDOW)
    assert [each[2] for each in peer.frames() if each[0] == 0] == [1, 3, 5] * 3


def test_a_client_that_does_not_read_its_socket_gets_no_data(peer: Peer) -> None:
    peer.headers(1, flags=LAST)
    peer.output.is_congested = True
    peer.http2.sender.respond(peer.app.streams[1], b"\x88", b"answer", b"\x89")
    assert [each[0] for each in peer.frames()] == [FrameType.HEADERS]
    peer.output.is_congested = False
    peer.http2.sender.pump()
    assert [each[0] for each in peer.frames()] == [FrameType.DATA, FrameType.HEADERS]


def test_a_stream_whose_window_stays_closed_is_reset(peer: Peer) -> None:
    peer.settings((4, 0))
    for stream in (1, 3):
        peer.headers(stream, flags=LAST)
        peer.http2.sender.respond(peer.app.streams[stream], b"\x88", b"answer", b"\x89")
    for second in range(59):
        peer.http2.tick()
        if second == 30:
            peer.window(3, 1)
    peer.frames()
    peer.http2.tick()
    assert reset_of(peer, 1) == ErrorCode.ENHANCE_YOUR_CALM
    assert list(peer.http2.streams) == [3] and peer.app.resets == [1]
    assert peer.http2.sender.pending_bytes == 5


def test_a_table_that_the_client_has_limited(peer: Peer) -> None:
    peer.settings((1, 0))
    peer.decoder.max_allowed_table_size = 0
    peer.headers(1, flags=LAST)
    peer.headers(3, flags=LAST)
    peer.frames()
    for stream in (1, 3):
        peer.http2.sender.respond(peer.app.streams[stream], b"\x88", b"x", b"\x89")
    blocks = [each[3] for each in peer.frames() if each[0] == FrameType.HEADERS]
    assert blocks == [b"\x20\x88", b"\x89", b"\x88", b"\x89"]
    peer.decoder.decode(blocks[0])  # the library insists on the update


# Ends


def test_an_end_before_the_end_of_the_request(peer: Peer) -> None:
    peer.headers(1)
    peer.http2.sender.end(peer.app.streams[1], b"\x88")
    assert [each[0] for each in peer.frames()] == [FrameType.HEADERS, FrameType.RST_STREAM]
    peer.data(1, b"on its way", END_STREAM)
    assert peer.frames() == []


def test_going_away(peer: Peer) -> None:
    peer.headers(1)
    peer.http2.go_away()
    peer.http2.go_away()
    assert peer.frames() == [(FrameType.GOAWAY, 0, 0, pack(">II", 1, 0))]
    peer.headers(3, [*REQUEST, ("x-indexed", "later")])
    peer.data(3, b"x", END_STREAM)
    peer.window(3, 1)
    peer.reset(3)
    assert list(peer.app.requests) == [1] and not peer.app.was_drained
    peer.data(1, b"x", END_STREAM)
    peer.http2.sender.respond(peer.app.streams[1], b"\x88", b"x", b"\x89")
    assert peer.app.was_drained


def test_a_client_that_goes_away(peer: Peer) -> None:
    peer.headers(1)
    peer.frame(FrameType.GOAWAY, 0, 0, bytes(8) + b"bye")
    peer.data(1, b"x", END_STREAM)
    assert peer.app.ended == [1]


def test_an_application_that_wants_no_more_for_now(peer: Peer) -> None:
    peer.http2.is_held_back = True
    peer.headers(1, flags=LAST)
    assert peer.http2.has_backlog and not peer.app.requests
    peer.http2.is_held_back = False
    peer.send(b"")
    assert list(peer.app.requests) == [1] and not peer.http2.has_backlog


def test_the_window_of_a_new_connection() -> None:
    assert Peer().http2.sender.window == DEFAULT_WINDOW
