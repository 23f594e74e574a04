"""The memory that all connections together may take: for requests not yet answered, and answers not taken.

Each connection has an *account*, and keeps it up to date. While the budget is spent, connections that hold
something are not read from, so that what is held can only become less. Where it does not, because clients
sent half of something or do not take their answers, the one that holds most of all who do not move has to go.
"""

import logging
from collections.abc import Callable

from posthouse.protocols.noop import noop

log = logging.getLogger(__name__)

STUCK_SECONDS = 5
"""How long a connection may hold memory that others wait for, without any of it becoming free."""
SMALL = 64 * 1024
"""Who holds no more is not counted, and never held up: there is always room to say something short."""
FAIR = 256 * 1024
"""Who has no more than this under way is read from even while the disk is behind."""


class Account:
    """Of one connection."""

    __slots__ = ("_budget", "_freed", "held", "peer", "regulate", "send_away", "stuck_seconds")

    def __init__(
        self, budget: "Budget", peer: str, regulate: Callable[[], None], send_away: Callable[[], None]
    ) -> None:
        """`regulate` is called when there is room again."""
        self._budget = budget
        self._freed = False
        self.held = 0
        self.peer = peer
        self.regulate = regulate
        self.send_away = send_away
        self.stuck_seconds = 0

    def set(self, held: int) -> None:
        """The bytes that the connection takes now."""
        if held <= SMALL:
            held = 0
        change = held - self.held
        if change:
            self.held = held
            if change < 0:
                self._freed = True
            self._budget._changed(self, change)

    @property
    def is_short(self) -> bool:
        """Whether memory is spent, by whomever."""
        return self._budget.room < 0

    def must_wait(self) -> bool:
        """Whether nothing more may be read from the connection; then `regulate` is called when it may."""
        if self._budget.room >= 0 or not self.held:
            return False
        self._budget._waiting[self] = None
        return True

    def close(self) -> None:
        self.set(0)
        self._budget._forget(self)
        self.regulate = self.send_away = noop

    def grow_older(self) -> None:
        """A second has passed."""
        self.stuck_seconds = 0 if self._freed else self.stuck_seconds + 1
        self._freed = False


class Budget:
    """Owned by the event loop. One for all listeners of a broker."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.room = limit
        """Below 0 it is spent: one request or answer more than fits can always come."""
        self._holders: dict[Account, None] = {}
        self._waiting: dict[Account, None] = {}

    def account(self, peer: str, regulate: Callable[[], None], send_away: Callable[[], None]) -> Account:
        return Account(self, peer, regulate, send_away)

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
        """Once a second: if the budget is spent, and stays so, somebody has to go."""
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
            largest.send_away()
