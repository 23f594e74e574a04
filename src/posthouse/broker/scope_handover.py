"""How a broker takes over the scopes of one kind, and gives them up, one after the other.

A scope is taken after the database has given it to this broker, and given up before the database gives it to
another one. A broker that is alone has loaded all of them at its start, and takes and releases none.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from posthouse.broker.held_scopes import HeldScopes
from posthouse.model.scopes import Scope
from posthouse.storage.contract import Storage
from posthouse.storage.shared_state import SharedState

Load = Callable[[Scope, SharedState], Awaitable[None]]
"""Loads what belongs to the scope. If it raises, nothing of that is loaded."""
Unload = Callable[[Scope], Awaitable[None]]
"""Returns when nothing of the scope is used any more, and its commits are done. Raises Unavailable if
they may not be."""
Served = Callable[[Scope], None]
"""Told that the scope is held, in the turn of the event loop in which it is."""


def nothing_served(scope: Scope) -> None:
    """What was loaded serves by itself."""


class ScopeHandover:
    """Owned by the event loop."""

    def __init__(
        self,
        storage: Storage,
        held: HeldScopes,
        scopes: Iterable[Scope],
        *,
        load: Load,
        unload: Unload,
        served: Served = nothing_served,
    ) -> None:
        self._storage = storage
        self._held = held
        self._load = load
        self._unload = unload
        self._served = served
        self._changing = {scope: asyncio.Lock() for scope in scopes}

    def holds(self, scope: Scope) -> bool:
        return self._held.holds(scope)

    async def take(self, scope: Scope) -> None:
        """No-op if it is held. Raises Unavailable."""
        shared = self._storage.shared_state
        if shared is None:
            raise ValueError("a broker that is alone holds all scopes")
        async with self._changing[scope]:
            if self._held.holds(scope):
                return
            with self._held.loaded(scope):
                await self._load(scope, shared)
            self._served(scope)

    async def release(self, scope: Scope) -> None:
        """When it returns, nothing of the scope is used any more, and all of its commits are done. Clients
        are told to look for another broker. Raises Unavailable; then the scope is not served either."""
        async with self._changing[scope]:
            self._held.release(scope)
            await self._unload(scope)
