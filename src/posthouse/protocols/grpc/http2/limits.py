"""Limits of one connection, and allowances: floods of frames that cost the client nothing.

A frame that carries nothing (an empty DATA, PING, WINDOW_UPDATE, PRIORITY, an unknown type) takes from an
allowance that grows with time and with real work. SETTINGS have one of their own, because they change all
streams, and resets, because each costs a whole call (rapid reset), also if the client only provokes them.
"""

from collections.abc import Callable
from dataclasses import dataclass

from posthouse.protocols.grpc.http2.errors import ConnectionFault, ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Http2Limits:
    max_streams: int = 512
    """Concurrent streams. Long polls keep theirs for many seconds."""
    stream_window: int = 64 * 1024
    """Bytes of a request that a client may send before the application has taken any."""
    connection_window: int = 4 * 1024 * 1024
    max_header_list: int = 16 * 1024
    """By the measure of RFC 9113: fields count 32 bytes more than they have."""
    max_header_block: int = 32 * 1024
    """Compressed, in HEADERS and CONTINUATION."""
    max_continuations: int = 8
    header_table: int = 4096
    idle_frames: int = 10_000
    idle_frames_a_second: int = 1_000
    settings_frames: int = 100
    settings_frames_a_second: int = 10
    resets: int = 1_000
    resets_a_second: int = 100


class Allowance:
    """What may be taken at once, and what grows back."""

    __slots__ = ("_left", "_monotonic", "_most", "_name", "_rate", "_since")

    def __init__(self, name: str, most: int, rate: float, monotonic: Callable[[], float]) -> None:
        self._name = name
        self._most = most
        self._rate = rate
        self._monotonic = monotonic
        self._left: float = most
        self._since = monotonic()

    def take(self) -> None:
        """Raises ConnectionFault if nothing is left."""
        if self._left < 1:  # the clock is asked only then
            now = self._monotonic()
            self._left = min(self._most, self._left + (now - self._since) * self._rate)
            self._since = now
            if self._left < 1:
                raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, f"too many {self._name}")
        self._left -= 1

    def earn(self, amount: int) -> None:
        """The client has done something useful."""
        if self._left < self._most:
            self._left += amount
