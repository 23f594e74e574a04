"""Flow control of one connection, both ways: when its socket is read from, and frames that wait to be sent.

It knows no protocol. Reading pauses, which is back-pressure on the client, while

- more than `limit` bytes of requests are in flight: received, and not yet answered;
- more than `FAIR` bytes are in flight and storage is behind with its writes;
- the connection is throttled, by a quota or because it kept the event loop busy;
- the budget of all connections is spent, and this one holds a part of it;
- the protocol has a reason of its own: `regulate(held_back=True)`.

Writes go through the `Outbox`, whose high watermark is `limit`, too. Each protocol decides how to treat a
congested client, because some clients write without reading. What both hold counts in the connection's share
of the memory budget.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from posthouse.protocols.budget import FAIR, SMALL, Account, Budget
from posthouse.protocols.listener import PARTLY_SENT
from posthouse.protocols.noop import noop
from posthouse.protocols.pace import Pace
from posthouse.protocols.throttle_timer import ThrottleTimer

Chunk: TypeAlias = bytes | bytearray | memoryview

_FLUSH_BYTES = 64 * 1024
"""More than this is written without waiting for the end of the iteration."""
_LARGE = 16 * 1024
"""Frames of this size are not copied into one buffer."""


class Outbox:
    """Outgoing frames of a connection, gathered during one iteration of the event loop and written in order.

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


class FlowControl:
    __slots__ = (
        "_held",
        "_is_behind",
        "_limit",
        "_transport",
        "account",
        "in_flight",
        "is_paused",
        "outbox",
        "pace",
        "throttle",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        budget: Budget,
        peer: str,
        *,
        limit: int,
        is_behind: Callable[[], bool],
        held: Callable[[], int],
        go_on: Callable[[], None],
        abort: Callable[[], None],
        throttled: Callable[[], None] = noop,
    ) -> None:
        """`held` returns the bytes that the protocol holds beyond those in flight: incomplete frames and
        unfinished responses. `go_on` is called when a throttle is over or the budget has room again: the
        protocol resumes what it held back, and calls `regulate`. `abort` closes the connection if it is
        stalled and holds memory that others need. `throttled` is called when a throttle begins: protocols
        whose handlers work for a while call `regulate` then, others do so after each request."""
        self._transport = transport
        self._limit = limit
        self._is_behind = is_behind
        self._held = held
        self.account = budget.account(peer, go_on, abort)
        self.outbox = Outbox(loop, transport, limit, self.account, self.count)
        self.throttle = ThrottleTimer(loop, go_on, throttled)
        self.pace = Pace()
        """Receive rate; the protocol counts the bytes."""
        self.in_flight = 0
        """Bytes in flight; the protocol keeps it up to date."""
        self.is_paused = False
        """Whether reading is paused."""

    def count(self) -> None:
        """Report the bytes that the connection holds to the budget."""
        unsent = self.outbox.unsent
        if unsent > SMALL:
            unsent += PARTLY_SENT
        held = self.in_flight + self._held() + unsent
        if held > SMALL or self.account.held:  # most connections always hold less: they are exempt
            self.account.set(held)

    def regulate(self, *, held_back: bool) -> None:
        """Pause or resume reading."""
        in_flight = self.in_flight
        pause = (
            held_back
            or in_flight > self._limit
            or (in_flight > FAIR and self._is_behind())
            or self.throttle.is_on
            or (self.account.held > 0 and self.account.must_wait())
        )
        if pause and not self.is_paused:
            self.is_paused = True
            self._transport.pause_reading()
        elif not pause:
            self.resume()

    def resume(self) -> None:
        """Resume reading regardless of the limits: bytes of a closing client are discarded."""
        if self.is_paused:
            self.is_paused = False
            self._transport.resume_reading()

    def is_too_slow(self, *, in_frame: bool) -> bool:
        """Whether the client sends the rest of a frame too slowly (slow loris). To be called once a
        second."""
        return self.pace.is_too_slow(waits_for_rest=in_frame and not self.is_paused)

    def close(self) -> None:
        """The connection is lost: drop all references to it."""
        self.account.close()
        self.outbox.close()
        self.throttle.close()
        self._held = _nothing
        self._is_behind = _never


def _nothing() -> int:
    return 0


def _never() -> bool:
    return False
