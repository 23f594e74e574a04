"""One connection between two brokers, on which both tell how far their commits have moved logs, and what
their clients use of limits.

A frame is the length of the rest (4 bytes), its kind (1 byte), and

    1  bounds   the time of sending in milliseconds since 1970 (8), and for each log its number, start, end
                and last stable offset (8 each)
    2  usage    for each limit its key (8), the amount (8), and whether clients want more (1)

Only the newest bounds of a log wait to be sent, of `MOST_WAITING` logs at most: others are forgotten, which
costs time and nothing else. Usage does not wait: the next report follows soon.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from struct import Struct
from typing import cast
from uuid import UUID

from posthouse.broker.cluster_usage import MOST_TOLD
from posthouse.cluster.keepalive import keep_alive
from posthouse.model.clock import Clock
from posthouse.model.usage import KEY_BYTES, ToldUse
from posthouse.protocols.peer_traffic import PeerTraffic
from posthouse.storage.log_news import Grown, LogNews

log = logging.getLogger(__name__)

MOST_WAITING = 10_000
_HIGH_WATERMARK = 64 * 1024
_UNREAD_SECONDS = 15
_LENGTH = Struct(">I")
_KIND = Struct(">B")
_BOUNDS_KIND, _USAGE_KIND = 1, 2
_TIME = Struct(">q")
_BOUNDS = Struct(">qqqq")
_MOST_AT_ONCE = 1000
_USE = Struct(f">{KEY_BYTES}sQ?")
_LONGEST = _KIND.size + _TIME.size + max(_MOST_AT_ONCE * _BOUNDS.size, MOST_TOLD * _USE.size)


class HintLink(asyncio.Protocol):
    def __init__(
        self,
        peer: UUID,
        clock: Clock,
        traffic: PeerTraffic,
        *,
        hinted: Grown,
        told: Callable[[Sequence[ToldUse]], None],
        made: Callable[["HintLink"], None],
        lost: Callable[["HintLink"], None],
    ) -> None:
        """`peer` is the incarnation of the other broker. `hinted` is called with its hints, `told` with what
        its clients use."""
        self.peer = peer
        self._clock = clock
        self._traffic = traffic
        self._hinted = hinted
        self._told = told
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
            self._traffic.hints_sent += len(now)
            self._write(
                _BOUNDS_KIND, _TIME.pack(self._clock.now_ms()), *(_BOUNDS.pack(*each) for each in now)
            )

    def tell_usage(self, report: Sequence[ToldUse]) -> None:
        """What clients of this broker use of limits."""
        if not self._is_congested:
            self._write(_USAGE_KIND, *(_USE.pack(*each) for each in report))

    def _write(self, kind: int, *parts: bytes) -> None:
        body = b"".join((_KIND.pack(kind), *parts))
        self._transport.write(_LENGTH.pack(len(body)) + body)

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
            end = _LENGTH.size + size
            if size <= _LONGEST and len(received) < end:
                return
            if size > _LONGEST or not self._take(bytes(received[_LENGTH.size : end])):
                log.error(
                    "closing the connection for hints with broker %s: a frame of %d bytes", self.peer, size
                )
                self.close()
                return
            del received[:end]

    def _take(self, frame: bytes) -> bool:
        """Whether it is a frame that this broker understands."""
        body = frame[_KIND.size :]
        if frame[: _KIND.size] == _KIND.pack(_USAGE_KIND) and not len(body) % _USE.size:
            self._told([ToldUse(*use) for use in _USE.iter_unpack(body)])
            return True
        if frame[: _KIND.size] != _KIND.pack(_BOUNDS_KIND) or len(body) % _BOUNDS.size != _TIME.size:
            return False
        self._take_bounds(body)
        return True

    def _take_bounds(self, body: bytes) -> None:
        (sent_ms,) = _TIME.unpack_from(body)
        hints = [LogNews(*bounds) for bounds in _BOUNDS.iter_unpack(body[_TIME.size :])]
        self._traffic.hints_received += len(hints)
        self._traffic.hint_lag_seconds = max(self._clock.now_ms() - sent_ms, 0) / 1000
        self._hinted(hints)

    def close(self) -> None:
        self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._lost(self)
