"""Outgoing frames of a connection, gathered during one iteration of the event loop and written at once."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from posthouse.protocols.budget import SMALL, Account
from posthouse.protocols.noop import noop

Chunk: TypeAlias = bytes | bytearray | memoryview

_FLUSH_BYTES = 64 * 1024
"""More than this is written without waiting for the end of the iteration."""
_LARGE = 16 * 1024
"""Frames of this size are not copied into one buffer."""


class Outbox:
    """Frames are sent in order.

    While more than `high_watermark` bytes are written and not read by the client, the connection is
    *congested*, until the transport's low watermark. Bytes that a protocol still sends to a congested client
    are *owed*: if they exceed the high watermark as well, the outbox is *overfull*.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        high_watermark: int,
        account: Account,
        written: Callable[[], None],
    ) -> None:
        """`written` is called after a large write, or while the account holds anything, to update the
        account."""
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
        """Bytes given to the transport so far."""
        self._taken = 0
        """Bytes of these that had been sent at the last check."""
        self._untaken_seconds = 0
        self._is_gathering = False
        self.is_congested = False
        self.is_closed = False
        self.was_used = False
        """Whether anything was written since the last heartbeat check."""
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
        """Whether messages may be delivered. While memory is short, a client that reads nothing gets
        nothing."""
        if self.is_congested:
            return False
        return self._budget.room >= 0 or self.unsent <= SMALL

    @property
    def unsent(self) -> int:
        return self._size + self._transport.get_write_buffer_size()

    def untaken_seconds(self) -> int:
        """For how many seconds the client has read nothing of its waiting bytes. To be called once a
        second."""
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
        """Send frames that belong together: deliveries, or the parts of one response."""
        if not self._frames:
            self._loop.call_soon(self.flush)
        self._frames += frames
        self._size += sum(map(len, frames))
        if self._size > _FLUSH_BYTES:
            self.flush()

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """Frames sent in this context are written together, up to a limit."""
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
        """Discard everything that is sent from now on."""
        self.is_closed = True
        self._counted = noop
        self._frames = []
        self._size = 0
