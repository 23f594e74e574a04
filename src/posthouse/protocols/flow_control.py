"""Flow control of one connection: its share of the memory budget, and when its socket is read from.

It knows no protocol. Reading pauses, which is back-pressure on the client, while

- more than `limit` bytes of requests are in flight: received, and not yet answered;
- more than `FAIR` bytes are in flight and storage is behind with its writes;
- the connection is throttled, by a quota or because it kept the event loop busy;
- the budget of all connections is spent, and this one holds a part of it;
- the protocol has a reason of its own: `regulate(held_back=True)`.

Writes go through the `outbox`, whose high watermark is `limit`, too. Each protocol decides how to treat a
congested client, because some clients write without reading.
"""

import asyncio
from collections.abc import Callable

from posthouse.protocols.budget import FAIR, SMALL, Budget
from posthouse.protocols.listener import PARTLY_SENT
from posthouse.protocols.outbox import Outbox
from posthouse.protocols.pace import Pace
from posthouse.protocols.throttle_timer import ThrottleTimer


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
    ) -> None:
        """`held` returns the bytes that the protocol holds beyond those in flight: incomplete frames and
        unfinished responses. `go_on` is called when a throttle is over or the budget has room again: the
        protocol resumes what it held back, and calls `regulate`. `abort` closes the connection if it is
        stalled and holds memory that others need."""
        self._transport = transport
        self._limit = limit
        self._is_behind = is_behind
        self._held = held
        self.account = budget.account(peer, go_on, abort)
        self.outbox = Outbox(loop, transport, limit, self.account, self.count)
        self.throttle = ThrottleTimer(loop, go_on)
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
