"""What goes to a client: gathered during one turn of the event loop, and written at once."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from posthouse.protocols.budget import SMALL, Account
from posthouse.protocols.noop import noop

_FLUSH_BYTES = 64 * 1024
"""More than this is written without waiting for the end of the turn."""
_LARGE = 16 * 1024
"""Frames that are not worth copying once more."""


class Outbox:
    """Frames leave in the order in which they came here.

    Beyond `limit` bytes that the client has not taken, it is *congested*: then nothing is delivered to it.
    Answers and confirms still go out, because many clients write without reading, and would wait for us as we
    for them. When those alone are more than the limit it is *overfull*, and the client not read from.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, limit: int) -> None:
        self._loop = loop
        self._transport = transport
        self._limit = limit
        self._frames: list[bytes] = []
        self._size = 0
        self._owed = 0
        """Bytes of answers since it is congested."""
        self._written = 0
        """Bytes that the transport was given so far."""
        self._taken = 0
        """How many of these had left when that was last looked at."""
        self._untaken_seconds = 0
        self._is_gathering = False
        self.is_congested = False
        self.is_closed = False
        self.was_used = False
        """Whether anything was written since a heartbeat last looked."""
        self.account: Account | None = None
        """Of the connection. Where memory is short, a client that takes nothing gets nothing."""
        self.counted: Callable[[], None] = noop
        """Called when much was written."""
        transport.set_write_buffer_limits(high=limit)

    @property
    def is_memory_short(self) -> bool:
        return self.account is not None and self.account.is_short

    @property
    def takes_deliveries(self) -> bool:
        if self.is_congested:
            return False
        return not self.is_memory_short or self.unsent <= SMALL

    @property
    def unsent(self) -> int:
        return self._size + self._transport.get_write_buffer_size()

    def untaken_seconds(self) -> int:
        """For how long the client has taken nothing of what waits for it. To be asked once a second."""
        waiting = self._transport.get_write_buffer_size()
        taken = self._written - waiting
        is_untaken = waiting > 0 and taken == self._taken
        self._untaken_seconds = self._untaken_seconds + 1 if is_untaken else 0
        self._taken = taken
        return self._untaken_seconds

    @property
    def is_overfull(self) -> bool:
        return self._owed > self._limit

    def send(self, frame: bytes) -> None:
        frames = self._frames
        if not frames:
            self._loop.call_soon(self.flush)
        frames.append(frame)
        self._size += len(frame)
        if self.is_congested:
            self._owed += len(frame)
        if self._size > _FLUSH_BYTES:
            self.flush()

    def send_all(self, frames: list[bytes]) -> None:
        """Deliveries that were made together."""
        if not self._frames:
            self._loop.call_soon(self.flush)
        self._frames += frames
        self._size += sum(map(len, frames))
        if self._size > _FLUSH_BYTES:
            self.flush()

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """What is sent in here leaves together, but for what is too much to be kept."""
        self._is_gathering = True
        try:
            yield
        finally:
            self.gathered()

    def gathered(self) -> None:
        self._is_gathering = False
        self.flush()

    def flush(self) -> None:
        frames = self._frames
        if not frames or (self._is_gathering and self._size <= _FLUSH_BYTES):
            return
        size = self._size
        self._frames = []
        self._size = 0
        if self.is_closed:
            return
        self.was_used = True
        self._written += size
        if size > _LARGE * len(frames):
            self._transport.writelines(frames)
        else:  # one buffer of many small frames costs less than many buffers
            self._transport.write(b"".join(frames))
        if size > _FLUSH_BYTES:
            self.counted()

    def pause(self) -> None:
        self.is_congested = True

    def resume(self) -> None:
        self.is_congested = False
        self._owed = 0

    def close(self) -> None:
        """What comes from now on goes nowhere."""
        self.is_closed = True
        self.counted = noop
        self._frames = []
        self._size = 0
