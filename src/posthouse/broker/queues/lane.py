"""A lane of a queue: messages in the order of their publishing, and the state of each.

A position is ready, leased or settled. Ready messages that are loaded wait in `window`, requeued ones in
`returned`; all others are on disk. Plain queues have one lane, queues with priorities one for each.
"""

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Any, Generic, Protocol, TypeVar

from posthouse.broker.progress.positions import LeaseTable
from posthouse.broker.progress.progress import Progress
from posthouse.broker.progress.stash import Stashed
from posthouse.broker.queues.expiries import Expiries
from posthouse.model.ids import PartitionId
from posthouse.records.references import NEVER
from posthouse.storage.operations import Run

RESERVATION = 10_000
"""Storage notes this many positions as handed out before the first of them is. After a crash, no message that
was delivered before is called new."""


class Leasable(Protocol):
    """A message, as far as a lane needs it. A message knows its lane: this avoids an import cycle."""

    position: int
    source: PartitionId
    size: int
    value: bytes | None
    expires_ms: int
    redelivered: bool

    def __lt__(self, other: Any) -> bool: ...


M = TypeVar("M", bound=Leasable)


class LaneOwner(Protocol[M]):
    """The queue that a lane belongs to."""

    def arrived(self, lane: "Lane[M]", runs: Sequence[Run], count: int, size: int) -> None:
        """`count` more positions of a lane are durable, with `size` bytes of values: those of `runs`."""

    def progressed(self, lane: "Lane[M]") -> None:
        """The lane settled positions itself, or took a settlement back: that has to be stored."""


class Lane(Generic[M]):
    """Owned by the event loop; does no input or output."""

    def __init__(
        self,
        owner: LaneOwner[M],
        log: PartitionId,
        stash_log: PartitionId,
        progress: Progress,
        end: int,
        *,
        expires: bool = True,
    ) -> None:
        self._owner = owner
        self.log = log
        self.stash_log = stash_log
        self.progress = progress
        self.end = end
        """Behind the last position that is durable."""
        self.loaded_to = progress.floor
        """Positions below are in the window, leased or settled."""
        self.is_gone = False
        """Its queue was deleted, and its log with it."""
        self.window: deque[M] = deque()
        self.window_bytes = 0
        self.returned: list[M] = []
        """A heap by position, with each position once."""
        self._latest: dict[int, M] = {}
        """The message that was requeued last, for each position in `returned`."""
        self.bodiless: list[M] = []
        """Requeued messages whose bodies have to be read again; a heap too. Later positions wait for them."""
        self.reloading: M | None = None
        """The one of these that is being read."""
        self.leases: LeaseTable[M] = LeaseTable(progress)
        self.unreadable = 0
        """Number of positions below `loaded_to` that cannot be read: they stay in the queue, undelivered."""
        self.expires = expires
        """Whether the times in references are those of expiry. In a stream, they are those of publishing."""
        self.expiries = Expiries()
        self._claimed = range(0)
        """Positions that a consumer had credit for when they arrived. They are handed out however short their
        time to live is: a slow disk must not expire them."""

    @property
    def ready(self) -> int:
        progress = self.progress
        there = self.end - progress.floor - progress.settled_above + len(progress.stash)
        return there - len(self.leases.holders) - self.unreadable

    @property
    def has_more(self) -> bool:
        """Whether there are ready messages that are not in memory."""
        return self.loaded_to < self.end or bool(self.bodiless) or self.reloading is not None

    @property
    def _barrier(self) -> int | None:
        """The first position that has to be read again."""
        first = self.bodiless[0].position if self.bodiless else None
        if self.reloading is not None and (first is None or self.reloading.position < first):
            return self.reloading.position
        return first

    @property
    def is_drained(self) -> bool:
        """Whether `take` has to wait for messages from disk."""
        following, barrier = self.next_in_memory, self._barrier
        if following is None:
            return self.has_more
        return barrier is not None and barrier <= following

    def arrived(self, runs: Sequence[Run]) -> None:
        first = self.end
        size = 0
        for run in runs:
            if run.append is None or run.append.base_offset >= 0:  # else it was there before
                if self.expires and run.expires_ms != NEVER:
                    self.expiries.add(self.end, self.end + run.count, run.expires_ms)
                self.end += run.count
                size += run.size
        self._owner.arrived(self, runs, self.end - first, size)

    def claim(self, first: int, end: int) -> None:
        """A consumer has credit for these positions."""
        self._claimed = range(self._claimed.start if self._claimed.stop == first else first, end)

    def unclaim(self) -> None:
        """No consumer has credit for the claimed positions any more."""
        self._claimed = range(0)

    def has_expired(self, message: M, now_ms: int) -> bool:
        """A claim protects a message until its first delivery."""
        if not NEVER < message.expires_ms <= now_ms:
            return False
        return message.redelivered or message.position not in self._claimed

    def take(self, most: int) -> list[M]:
        """Lease the next messages in order."""
        taken: list[M] = []
        window, returned, progress = self.window, self.returned, self.progress
        leased = self.leases.holders
        plain = not progress.settled_above  # then nothing in the window can be settled
        reserved_to = progress.reserved_to
        if (barrier := self._barrier) is not None:
            reserved_to = min(reserved_to, barrier)
        while len(taken) < most:
            if returned and (not window or returned[0].position < window[0].position):
                if returned[0].position >= reserved_to:
                    break
                message = self._latest.pop(heappop(returned).position)
            elif window and window[0].position < reserved_to:
                message = window.popleft()
                self.window_bytes -= message.size
            else:
                break
            position = message.position
            if position in leased or (
                (position < progress.floor or (not plain and progress.is_settled(position)))
                and position not in progress.stash
            ):
                continue  # it expired or was purged while it waited
            leased[position] = message
            taken.append(message)
        if taken and taken[-1].position >= progress.handed_out_to:
            progress.handed_out_to = taken[-1].position + 1
        return taken

    @property
    def needs_reservation(self) -> bool:
        """Whether the next position must be reserved before it is delivered."""
        position = self.next_in_memory
        return position is not None and position + RESERVATION // 2 >= self.progress.reserved_to

    @property
    def next_in_memory(self) -> int | None:
        """The position that `take` would lease first."""
        window, returned = self.window, self.returned
        if returned and (not window or returned[0].position < window[0].position):
            return returned[0].position
        return window[0].position if window else None

    def loaded(self, messages: Sequence[M]) -> None:
        """Append messages to the window."""
        self.window.extend(messages)
        self.window_bytes += sum(message.size for message in messages)

    def pass_over(self, first: int, end: int) -> None:
        """Skip positions behind the window that cannot be read before the next start."""
        if not self.progress.settled_above:
            self.unreadable += max(end - max(first, self.progress.floor), 0)
            return
        position = self.progress.next_unsettled(first)
        while position < end:
            self.unreadable += 1
            position = self.progress.next_unsettled(position + 1)

    def unsettle(self, message: M) -> None:
        """A settlement could not be stored."""
        self.leases.unsettle(message.position, message)
        self.progress.not_stored()
        self._owner.progressed(self)  # another commit may have stored it meanwhile

    def requeue(self, message: M) -> bool:
        """Requeue the message. False where it is not leased."""
        if not self.leases.release(message.position, message):
            return False
        if message.value is None:
            heappush(self.bodiless, message)
        else:
            self.reloaded(message)
        return True

    def park(self, message: M) -> None:
        """End the lease. The message is not taken again before it is `reloaded`."""
        self.leases.release(message.position, message)

    def reloaded(self, message: M) -> None:
        if message.position not in self._latest:
            heappush(self.returned, message)
        self._latest[message.position] = message

    def next_bodiless(self) -> M | None:
        """The next message whose body is read again: `reloading`, until that ends or a purge drops it."""
        self.reloading = heappop(self.bodiless) if self.bodiless else None
        return self.reloading

    def put_aside(self, message: M, offset: int) -> None:
        """A copy is in the stash: it replaces the record in the log, unless the message is settled."""
        position, progress = message.position, self.progress
        if progress.stash.move(position, offset):
            progress.is_changed = True
        elif not progress.is_settled(position):
            stashed = Stashed(offset, message.expires_ms, message.size, message.source.topic)
            progress.put_aside(position, stashed)
            self._watch_expiry(position, stashed)
            if position >= self.loaded_to and position not in self.leases.holders:
                message.value = None
                heappush(self.bodiless, message)  # loading skips its position in the log

    def load_stash(self, stashed: Sequence[M]) -> None:
        """After a restart: the messages in the stash wait to be read."""
        for message in stashed:
            heappush(self.bodiless, message)
            self._watch_expiry(message.position, self.progress.stash[message.position])

    def expired_in_stash(self, first: int, end: int, now_ms: int) -> list[int]:
        """Positions in the stash that have expired and are not leased."""
        stash = self.progress.stash
        return [
            position
            for position in stash
            if first <= position < end
            and NEVER < stash[position].expires_ms <= now_ms
            and position not in self.leases.holders
        ]

    def lose(self, first: int, end: int) -> None:
        """Settle the positions from `first` to before `end`: their records are gone."""
        self.progress.settle_range(first, end)
        self._owner.progressed(self)

    def lose_message(self, message: M) -> None:
        """Settle a message whose record is missing, in the log or in the stash."""
        self.progress.settle(message.position)
        self._owner.progressed(self)

    def _watch_expiry(self, position: int, stashed: Stashed) -> None:
        if stashed.expires_ms != NEVER:
            self.expiries.add_span(stashed.expires_ms, position, position + 1)

    def purge(self) -> int:
        """Settle all ready messages, and return their number."""
        count = self.ready + self.unreadable
        self.unreadable = 0
        self.leases.settle_unleased(self.progress.floor, self.end)
        for position in [each for each in self.progress.stash if each not in self.leases.holders]:
            self.progress.settle(position)
        self.loaded_to = self.end
        self.window.clear()
        self.window_bytes = 0
        self.returned.clear()
        self._latest.clear()
        self.bodiless.clear()
        self.reloading = None
        return count
