"""Frames that cost the client nothing: each flood ends the connection, and holds little memory until then."""

from collections.abc import Callable
from struct import pack

import pytest

from posthouse.protocols.grpc.http2.errors import ConnectionFault, ErrorCode
from posthouse.protocols.grpc.http2.frames import END_HEADERS, END_STREAM, PADDED, frame
from tests.protocols.grpc.http2.peer import Peer

LAST = END_HEADERS | END_STREAM
_MOST = 30_000


def _reset(peer: Peer, each: int) -> None:
    peer.headers(2 * each + 3)
    peer.reset(2 * each + 3)


def _provoked(peer: Peer, each: int) -> None:
    peer.headers(2 * each + 3)
    peer.window(2 * each + 3, 0)


def _malformed(peer: Peer, each: int) -> None:
    peer.headers(2 * each + 3, [(":path", "/")])


def _refused(peer: Peer, each: int) -> None:
    peer.headers(2 * each + 3)


FLOODS: dict[str, Callable[[Peer, int], None]] = {
    "PING": lambda peer, _: peer.frame(6, 0, 0, bytes(8)),
    "PING answered": lambda peer, _: peer.frame(6, 1, 0, bytes(8)),
    "SETTINGS": lambda peer, _: peer.settings((4, 5)),
    "empty SETTINGS": lambda peer, _: peer.settings(),
    "PRIORITY": lambda peer, _: peer.frame(2, 0, 1, bytes(5)),
    "unknown": lambda peer, _: peer.frame(99, 0, 0),
    "WINDOW_UPDATE": lambda peer, _: peer.window(1, 1),
    "empty DATA": lambda peer, _: peer.data(1, b""),
    "padded DATA": lambda peer, _: peer.data(1, b"\x00", PADDED),
    "GOAWAY": lambda peer, _: peer.frame(7, 0, 0, bytes(8)),
    "rapid resets": _reset,
    "provoked resets": _provoked,
    "malformed requests": _malformed,
    "refused streams": _refused,
}


@pytest.mark.parametrize("name", FLOODS)
def test_floods(name: str) -> None:
    peer = Peer()
    peer.headers(1)
    sent = 0
    with pytest.raises(ConnectionFault) as caught:
        while sent < _MOST:
            FLOODS[name](peer, sent)
            sent += 1
    assert caught.value.code == ErrorCode.ENHANCE_YOUR_CALM
    assert sent < _MOST
    assert len(peer.output.sent) < 1024 * 1024
    assert len(peer.http2.streams) <= 512 and len(peer.http2._was_reset) <= 1001


@pytest.mark.parametrize("name", ["PING", "WINDOW_UPDATE", "rapid resets"])
def test_the_same_in_their_time(name: str) -> None:
    peer = Peer()
    peer.headers(1)
    for each in range(5000):
        peer.now += 0.05
        FLOODS[name](peer, each)


def test_updates_of_windows_after_data_are_no_flood() -> None:
    peer = Peer()
    for each in range(20_000):
        peer.headers(2 * each + 1, flags=LAST)
        peer.http2.sender.respond(peer.app.streams.pop(2 * each + 1), b"\x88", b"x" * 10, b"\x89")
        peer.window(0, 10)
        peer.window(2 * each + 1, 10)
        peer.frame(6, 0, 0, bytes(8))
        peer.output.sent.clear()


@pytest.mark.parametrize("part", [b"", b"\x00\x01a\x01b", bytes(16_000)])
def test_a_header_block_without_end(part: bytes) -> None:
    peer = Peer()
    peer.frame(1, 0, 1, b"\x82")
    with pytest.raises(ConnectionFault) as caught:
        for _ in range(100):
            peer.frame(9, 0, 1, part)
            assert peer.http2.held < 40_000
    assert caught.value.code == ErrorCode.ENHANCE_YOUR_CALM


def test_a_small_block_with_large_headers() -> None:
    peer = Peer()
    field = b"\x40\x01a\x7f\xa1\x1e" + b"x" * 4000
    peer.frame(1, LAST, 1, field + b"\xbe" * 12_000)
    [(kind, _, stream, payload)] = peer.frames()
    assert (kind, stream, payload) == (3, 1, pack(">I", ErrorCode.ENHANCE_YOUR_CALM))
    assert not peer.app.requests


def test_more_streams_than_allowed() -> None:
    peer = Peer(max_streams=2)
    for stream in (1, 3, 5):
        peer.headers(stream)
    assert peer.frames() == [(3, 0, 5, pack(">I", ErrorCode.REFUSED_STREAM))]
    peer.data(5, b"on its way", END_STREAM)
    peer.reset(1)
    peer.headers(7)
    assert list(peer.http2.streams) == [3, 7]


def test_frames_of_any_kind_are_bounded_in_size() -> None:
    peer = Peer()
    peer.send(frame(6, 0, 0, bytes(8))[:5])
    assert peer.http2.held == 5
