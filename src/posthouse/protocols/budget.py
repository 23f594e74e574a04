"""The memory budget of all connections: for unanswered requests and unsent responses.

Each connection has an *account*, and keeps it up to date. While the budget is spent, reading pauses on
connections that hold memory (back-pressure), so that the sum can only shrink. If it does not, because clients
sent half a frame or do not read their responses, the largest stalled connection is closed.
"""

import logging
from collections.abc import Callable

from posthouse.protocols.noop import noop

log = logging.getLogger(__name__)

STUCK_SECONDS = 5
"""A connection that frees no memory for this time is stalled."""
SMALL = 64 * 1024
"""Connections that hold at most this are exempt from the budget: a short request always passes."""
FAIR = 256 * 1024
"""Connections with at most this in flight are read from even while the disk is behind."""


class Account:
    """The memory that one connection holds."""

    __slots__ = ("_freed", "abort", "budget", "held", "peer", "regulate", "stuck_seconds")

    def __init__(
        self, budget: "Budget", peer: str, regulate: Callable[[], None], abort: Callable[[], None]
    ) -> None:
        """`regulate` is called when there is room again, `abort` to close the connection."""
        self.budget = budget
        self._freed = False
        self.held = 0
        self.peer = peer
        self.regulate = regulate
        self.abort = abort
        self.stuck_seconds = 0

    def set(self, held: int) -> None:
        """Set the bytes that the connection holds now."""
        if held <= SMALL:
            held = 0
        change = held - self.held
        if change:
            self.held = held
            if change < 0:
                self._freed = True
            self.budget._changed(self, change)

    def must_wait(self) -> bool:
        """Whether reading must pause. If so, `regulate` is called when the budget has room again."""
        if self.budget.room >= 0 or not self.held:
            return False
        self.budget._waiting[self] = None
        return True

    def close(self) -> None:
        self.set(0)
        self.budget._forget(self)
        self.regulate = self.abort = noop

    def grow_older(self) -> None:
        """A second has passed."""
        self.stuck_seconds = 0 if self._freed else self.stuck_seconds + 1
        self._freed = False


class Budget:
    """Owned by the event loop. One for all listeners of a broker."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.room = limit
        """Free bytes. Below 0 the budget is spent: the last request or response may exceed it."""
        self._holders: dict[Account, None] = {}
        self._waiting: dict[Account, None] = {}

    def account(self, peer: str, regulate: Callable[[], None], abort: Callable[[], None]) -> Account:
        return Account(self, peer, regulate, abort)

    def _changed(self, account: Account, change: int) -> None:
        if account.held:
            self._holders[account] = None
        else:
            self._holders.pop(account, None)
            account.stuck_seconds = 0
        was_spent = self.room < 0
        self.room -= change
        if was_spent and self.room >= 0 and self._waiting:
            waiting, self._waiting = self._waiting, {}
            for each in waiting:
                each.regulate()

    def _forget(self, account: Account) -> None:
        self._holders.pop(account, None)
        self._waiting.pop(account, None)

    def sweep(self) -> None:
        """Once a second: while the budget is spent, close the largest stalled connection."""
        for account in self._holders:
            account.grow_older()
        if self.room >= 0:
            return
        stuck = [account for account in self._holders if account.stuck_seconds >= STUCK_SECONDS]
        if stuck:
            largest = max(stuck, key=lambda account: account.held)
            log.warning(
                "closing the connection from %s: stalled with %d bytes while inflight_bytes is spent",
                largest.peer,
                largest.held,
            )
            largest.abort()
