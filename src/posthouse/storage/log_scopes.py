"""Scopes of housekeeping in a storage that several brokers share: each keeps house for some of the logs."""

from typing import Protocol

from posthouse.model.scopes import Scope


class LogScopes(Protocol):
    """Consolidation and the like go on by themselves for the logs of the scopes that were taken, and
    `Storage.enforce_retention` and `Storage.compact` are for these logs."""

    def holds(self, scope: Scope) -> bool: ...

    async def take(self, scope: Scope) -> None:
        """The database has given the scope to this broker."""

    async def release(self, scope: Scope) -> None:
        """When it returns, nothing is done in the scope any more, or it will not count. Raises Unavailable;
        then nothing is begun either."""
