"""Slow-loris detection: a client that sends less than 1 KiB/s for 30 s inside a frame is too slow."""

LEAST_BYTES_A_SECOND = 1024
SLOW_SECONDS = 30


class Pace:
    __slots__ = ("_before", "_slow_seconds", "received")

    def __init__(self) -> None:
        self.received = 0
        """Bytes received; the connection counts them."""
        self._before = 0
        self._slow_seconds = 0

    def is_too_slow(self, *, waits_for_rest: bool) -> bool:
        """To be called once a second. `waits_for_rest`: a frame is incomplete, and reading is not paused."""
        came, self._before = self.received - self._before, self.received
        if not waits_for_rest or came >= LEAST_BYTES_A_SECOND:
            self._slow_seconds = 0
        else:
            self._slow_seconds += 1
        return self._slow_seconds >= SLOW_SECONDS
