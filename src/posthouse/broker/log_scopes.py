"""Scopes of housekeeping: the logs whose retention and compaction this broker takes care of.

A broker that is alone does it for all logs. In a cluster a scope is taken after the database has given it to
this broker, and given up before the database gives it to another one. Storage knows which logs belong to it.
"""

from posthouse.broker.housekeeping import Housekeeping
from posthouse.broker.retention import Retention
from posthouse.model.scopes import Scope
from posthouse.storage import log_scopes
from posthouse.storage.contract import Storage


class LogScopes:
    """Owned by the event loop."""

    def __init__(self, storage: Storage, retention: Retention, *, check_seconds: float) -> None:
        self._storage = storage
        self._chores = (
            Housekeeping([retention.enforce], check_seconds),
            Housekeeping([retention.compact], check_seconds),
        )

    def start(self) -> None:
        for chore in self._chores:
            chore.start()

    def holds(self, scope: Scope) -> bool:
        shared = self._storage.log_scopes
        return shared is None or shared.holds(scope)

    async def take(self, scope: Scope) -> None:
        """No-op if it is held."""
        await self._shared().take(scope)

    async def release(self, scope: Scope) -> None:
        """See `storage.log_scopes`. Raises Unavailable; then nothing is done in the scope either."""
        await self._shared().release(scope)

    def _shared(self) -> log_scopes.LogScopes:
        shared = self._storage.log_scopes
        if shared is None:
            raise ValueError("a broker that is alone holds all scopes")
        return shared

    async def stop(self) -> None:
        for chore in self._chores:
            await chore.stop()
