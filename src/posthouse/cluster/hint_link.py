"""One connection between two brokers, on which both tell how far their commits have moved logs.

A frame is the length of the rest (4 bytes), the time of sending in milliseconds since 1970 (8), and for each
log its number, start, end and last stable offset (8 each). Only the newest bounds of a log wait to be sent,
of `MOST_WAITING` logs at most: others are forgotten, which costs time and nothing else.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from struct import Struct
from typing import cast
from uuid import UUID

from posthouse.cluster.keepalive import keep_alive
from posthouse.model.clock import Clock
from posthouse.protocols.peer_traffic import PeerTraffic
from posthouse.storage.log_news import Grown, LogNews

log = logging.getLogger(__name__)

MOST_WAITING = 10_000
_HIGH_WATERMARK = 64 * 1024
_UNREAD_SECONDS = 15
_LENGTH = Struct(">I")
_TIME = Struct(">q")
_BOUNDS = Struct(">qqqq")
_MOST_AT_ONCE = 1000
_LONGEST = _TIME.size + _MOST_AT_ONCE * _BOUNDS.size


class HintLink(asyncio.Protocol):
    def __init__(
        self,
        peer: UUID,
        clock: Clock,
        traffic: PeerTraffic,
        *,
        hinted: Grown,
        made: Callable[["HintLink"], None],
        lost: Callable[["HintLink"], None],
    ) -> None:
        """`peer` is the incarnation of the other broker. `hinted` is called with its hints."""
        self.peer = peer
        self._clock = clock
        self._traffic = traffic
        self._hinted = hinted
        self._made = made
        self._lost = lost
        self._received = bytearray()
        self._waiting: dict[int, LogNews] = {}
        self._is_congested = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATERMARK)
        keep_alive(transport.get_extra_info("socket"), unread_seconds=_UNREAD_SECONDS)
        self._made(self)

    def tell(self, hints: Sequence[LogNews]) -> None:
        waiting = self._waiting
        for each in hints:
            waiting[each.log] = each
        while len(waiting) > MOST_WAITING:
            del waiting[next(iter(waiting))]
        self._send()

    def _send(self) -> None:
        waiting = self._waiting
        while waiting and not self._is_congested:
            now = list(waiting.values())[:_MOST_AT_ONCE]
            if len(now) == len(waiting):
                waiting.clear()
            else:
                for each in now:
                    del waiting[each.log]
            rows = [_BOUNDS.pack(*each) for each in now]
            size = _TIME.size + len(rows) * _BOUNDS.size
            self._traffic.hints_sent += len(rows)
            self._transport.write(b"".join((_LENGTH.pack(size), _TIME.pack(self._clock.now_ms()), *rows)))

    def pause_writing(self) -> None:
        self._is_congested = True

    def resume_writing(self) -> None:
        self._is_congested = False
        self._send()

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        while len(received) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(received)
            if not _TIME.size <= size <= _LONGEST or (size - _TIME.size) % _BOUNDS.size:
                log.error(
                    "closing the connection for hints with broker %s: a frame of %d bytes", self.peer, size
                )
                self.close()
                return
            end = _LENGTH.size + size
            if len(received) < end:
                return
            self._take(bytes(received[_LENGTH.size : end]))
            del received[:end]

    def _take(self, frame: bytes) -> None:
        (sent_ms,) = _TIME.unpack_from(frame)
        hints = [LogNews(*bounds) for bounds in _BOUNDS.iter_unpack(frame[_TIME.size :])]
        self._traffic.hints_received += len(hints)
        self._traffic.hint_lag_seconds = max(self._clock.now_ms() - sent_ms, 0) / 1000
        self._hinted(hints)

    def close(self) -> None:
        self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._lost(self)
