"""Taking over and giving up the transactional ids of scopes.

A broker that is alone loads all of them once. In a cluster a scope is taken after the database has given it
to this broker, and given up before the database gives it to another one.
"""

import asyncio

from posthouse.broker.held_scopes import HeldScopes
from posthouse.broker.housekeeping import Housekeeping
from posthouse.broker.transactions.coordinator import Transactions
from posthouse.model.scopes import TRANSACTIONS, Scope
from posthouse.storage.contract import Storage

_CHECK_SECONDS = 1.0
"""Interval of the check for expired transactions."""


class TransactionScopes:
    """Owned by the event loop."""

    def __init__(
        self, storage: Storage, held: HeldScopes, transactions: Transactions, *, check_seconds: float
    ) -> None:
        """`check_seconds` is the interval in which transactional ids expire."""
        self._storage = storage
        self._held = held
        self._transactions = transactions
        self._chores = (
            Housekeeping([transactions.abort_expired], _CHECK_SECONDS),
            Housekeeping([transactions.expire], check_seconds),
        )
        self._changing = {scope: asyncio.Lock() for scope in TRANSACTIONS}

    async def load_all(self) -> None:
        """In a broker that is alone."""
        await self._transactions.load_all()

    def start(self) -> None:
        for chore in self._chores:
            chore.start()

    def holds(self, scope: Scope) -> bool:
        return self._held.holds(scope)

    async def take(self, scope: Scope) -> None:
        """No-op if it is held. Raises Unavailable."""
        shared = self._storage.shared_state
        if shared is None:
            raise ValueError("a broker that is alone holds all scopes")
        async with self._changing[scope]:
            if not self._held.holds(scope):
                with self._held.loaded(scope):
                    await self._transactions.load(scope, shared)

    async def release(self, scope: Scope) -> None:
        """When it returns, nothing of the scope is used any more, and all of its commits are done. Clients
        are told to look for another broker. Raises Unavailable; then the scope is not served either."""
        async with self._changing[scope]:
            self._held.release(scope)
            await self._transactions.unload(scope)

    async def stop(self) -> None:
        """No more requests come."""
        for chore in self._chores:
            await chore.stop()
        await self._transactions.close()
