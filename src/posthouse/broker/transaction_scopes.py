"""The transactional ids of the scopes that this broker holds."""

from posthouse.broker.held_scopes import HeldScopes
from posthouse.broker.housekeeping import Housekeeping
from posthouse.broker.scope_handover import ScopeHandover
from posthouse.broker.transactions.coordinator import Transactions
from posthouse.model.scopes import TRANSACTIONS
from posthouse.storage.contract import Storage

_CHECK_SECONDS = 1.0
"""Interval of the check for expired transactions."""


class TransactionScopes:
    """Owned by the event loop."""

    def __init__(
        self, storage: Storage, held: HeldScopes, transactions: Transactions, *, check_seconds: float
    ) -> None:
        """`check_seconds` is the interval in which transactional ids expire."""
        self._transactions = transactions
        self.handover = ScopeHandover(
            storage, held, TRANSACTIONS, load=transactions.load, unload=transactions.unload
        )
        self._chores = (
            Housekeeping([transactions.abort_expired], _CHECK_SECONDS),
            Housekeeping([transactions.expire], check_seconds),
        )

    async def load_all(self) -> None:
        """In a broker that is alone."""
        await self._transactions.load_all()

    def start(self) -> None:
        for chore in self._chores:
            chore.start()

    async def stop(self) -> None:
        """No more requests come."""
        for chore in self._chores:
            await chore.stop()
        await self._transactions.close()
