"""Several producers at once, in one thread: requests built beforehand, as fast as they are acknowledged."""

import itertools
import selectors
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench import wire

_PATIENCE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """One connection."""

    port: int
    frames: Sequence[bytes]
    """Sent round and round."""
    window: int
    """Requests that may be unanswered."""


def push(producers: Sequence[Producer], seconds: float) -> wire.Load:
    """All of them until the time is over and everything is answered."""
    with selectors.DefaultSelector() as selector:
        sendings = [_Sending(each, selector) for each in producers]
        try:
            begun = time.perf_counter()
            while True:
                is_over = time.perf_counter() - begun >= seconds
                if is_over and not any(each.is_pending for each in sendings):
                    break
                for each in sendings:
                    each.regulate(is_over=is_over)
                for key, events in selector.select(_PATIENCE):
                    sending: _Sending = key.data
                    if events & selectors.EVENT_READ:
                        sending.hear()
                    if events & selectors.EVENT_WRITE:
                        sending.send(is_over=is_over)
            took = time.perf_counter() - begun
        finally:
            for each in sendings:
                each.socket.close()
    sent = sum(each.sent_bytes for each in sendings)
    return wire.Load(took, sent, [latency for each in sendings for latency in each.latencies])


class _Sending:
    def __init__(self, producer: Producer, selector: selectors.BaseSelector) -> None:
        self.socket: socket.socket = wire.connected(producer.port)
        self.socket.setblocking(False)
        self.sent_bytes = 0
        self.latencies: list[float] = []
        self._frames: Iterator[bytes] = itertools.cycle(producer.frames)
        self._window = producer.window
        self._answers = wire.Answers(self.socket)
        self._left = memoryview(b"")
        self._sent_at: list[float] = []
        self._selector = selector
        self._events = selectors.EVENT_READ
        selector.register(self.socket, self._events, self)

    @property
    def is_pending(self) -> bool:
        return bool(self._left) or len(self.latencies) < len(self._sent_at)

    def _may_send(self, *, is_over: bool) -> bool:
        return bool(self._left) or (not is_over and len(self._sent_at) - len(self.latencies) < self._window)

    def regulate(self, *, is_over: bool) -> None:
        events = selectors.EVENT_READ
        if self._may_send(is_over=is_over):
            events |= selectors.EVENT_WRITE
        if events != self._events:
            self._events = events
            self._selector.modify(self.socket, events, self)

    def hear(self) -> None:
        answered = self._answers.receive()
        now = time.perf_counter()
        first = len(self.latencies)
        self.latencies.extend(now - at for at in self._sent_at[first : first + answered])

    def send(self, *, is_over: bool) -> None:
        """As much as the window and the socket take."""
        while self._may_send(is_over=is_over):
            if not self._left:
                self._left = memoryview(next(self._frames))
                self._sent_at.append(time.perf_counter())
            try:
                taken = self.socket.send(self._left)
            except BlockingIOError:
                return
            self._left = self._left[taken:]
            self.sent_bytes += taken
