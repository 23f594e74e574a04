"""Connections whose other machine is gone without a word: the system closes them."""

import socket
import sys

_IDLE_SECONDS = 30
_INTERVAL_SECONDS = 10
_PROBES = 3


def keep_alive(sock: socket.socket, *, unread_seconds: int) -> None:
    """The system closes the connection when the other machine does not answer, or takes none of the bytes
    that wait for it in `unread_seconds`."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _INTERVAL_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, unread_seconds * 1000)
