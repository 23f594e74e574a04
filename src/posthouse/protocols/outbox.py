"""What goes to a client: gathered during one turn of the event loop, and written with one system call."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from posthouse.protocols.budget import SMALL, Account
from posthouse.protocols.noop import noop

Chunk: TypeAlias = bytes | bytearray | memoryview

_FLUSH_BYTES = 64 * 1024
"""More than this is written without waiting for the end of the turn."""
_LARGE = 16 * 1024
"""Frames that are not worth copying once more."""


class Outbox:
    """Frames leave in the order in which they came here.

    While more than `high_watermark` bytes are written and not taken by the client, the connection is
    *congested*; it is again uncongested at the transport's low watermark. What a protocol still sends to a
    congested client is *owed*: beyond the high watermark of that the outbox is *overfull*.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        high_watermark: int,
        account: Account,
        written: Callable[[], None],
    ) -> None:
        """`written` is called when much was written, or while the account holds anything: it counts again."""
        self._loop = loop
        self._transport = transport
        self._high_watermark = high_watermark
        self._account = account
        self._budget = account.budget
        self._counted = written
        self._frames: list[Chunk] = []
        self._size = 0
        self._owed = 0
        """Bytes sent since the client is congested."""
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
        transport.set_write_buffer_limits(high=high_watermark)

    @property
    def sent(self) -> int:
        """Bytes that the transport was given so far."""
        return self._written

    @property
    def is_memory_short(self) -> bool:
        return self._budget.room < 0

    @property
    def takes_deliveries(self) -> bool:
        """Whether messages may be pushed. Where memory is short, a client that takes nothing gets nothing."""
        if self.is_congested:
            return False
        return self._budget.room >= 0 or self.unsent <= SMALL

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
        return self._owed > self._high_watermark

    def send(self, frame: Chunk) -> None:
        frames = self._frames
        if not frames:
            self._loop.call_soon(self.flush)
        frames.append(frame)
        self._size += len(frame)
        if self.is_congested:
            self._owed += len(frame)
        if self._size > _FLUSH_BYTES:
            self.flush()

    def send_all(self, frames: Sequence[Chunk]) -> None:
        """Frames that were made together: deliveries, or the parts of one response."""
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
        if size > SMALL or self._account.held:
            self._counted()

    def pause(self) -> None:
        """The transport is above its high watermark."""
        self.is_congested = True

    def resume(self) -> None:
        """The transport is below its low watermark."""
        self.is_congested = False
        self._owed = 0

    def close(self) -> None:
        """What is sent from now on goes nowhere."""
        self.is_closed = True
        self._counted = noop
        self._frames = []
        self._size = 0
