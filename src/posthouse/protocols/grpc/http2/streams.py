"""One stream: its windows, and what waits to be sent on it."""

from collections import deque
from collections.abc import Callable
from typing import Any


class Stream:
    """Owned by its connection; the application keeps its call in `call`."""

    __slots__ = (
        "call",
        "drained",
        "end_block",
        "expected",
        "id",
        "is_closed",
        "is_local_ended",
        "is_remote_ended",
        "pending",
        "pending_bytes",
        "receive_window",
        "send_window",
        "stalled_seconds",
        "taken",
    )

    def __init__(self, id: int, receive_window: int, send_window: int) -> None:
        self.id = id
        self.receive_window = receive_window
        self.send_window = send_window
        """Below 0 if the client has made its initial window smaller."""
        self.taken = 0
        """Bytes that the application has taken, and the client has not been told of."""
        self.expected = -1
        """Bytes that are still to come, by the header content-length; below 0 without one."""
        self.is_remote_ended = False
        self.is_local_ended = False
        """All is sent, or waits to be sent."""
        self.is_closed = False
        self.pending: deque[memoryview] = deque()
        self.pending_bytes = 0
        self.end_block: bytes | None = None
        """Trailers that follow what is pending."""
        self.stalled_seconds = 0
        """Since the client's windows let anything of `pending` pass."""
        self.call: Any = None
        self.drained: Callable[[], None] | None = None
        """Called each time that nothing is pending any more."""
