"""The namespaces of the scopes that this broker holds: exchanges, queues, and delayed messages.

    free ──load──► loading ──serve──► held ──release──► closing ──unload──► free

Records for a topic that feeds queues are appended with their references or refused, never without them: what
is loaded is served, and what is unloaded is not served any more, in one turn of the event loop.
"""

from collections.abc import Awaitable, Callable

from posthouse.broker.held_scopes import HeldScopes
from posthouse.broker.housekeeping import Housekeeping
from posthouse.broker.queues.namespaces import Namespaces
from posthouse.broker.queues.publishing import Publishing
from posthouse.broker.schedule.schedules import Schedules
from posthouse.broker.scope_handover import ScopeHandover
from posthouse.model.scopes import NAMESPACES, Scope
from posthouse.storage.contract import Storage
from posthouse.storage.shared_state import SharedState
from posthouse.storage.spaces import Space

_QUEUE_CHECK_SECONDS = 0.1
"""Interval of the check for expired unused queues."""
_RECLAIM_SECONDS = 10.0
"""Interval at which queues release settled messages."""
_HANDED_OVER_SECONDS = 1.0
"""Interval of the look for what other brokers have left: transactions, and messages that are due."""

SessionsEnd = Callable[[Scope], Awaitable[None]]
"""Ends the sessions of clients in the namespaces of the scope. They find the next holder."""


async def no_sessions(scope: Scope) -> None:
    """There are no clients."""


class NamespaceScopes:
    """Owned by the event loop."""

    def __init__(
        self,
        storage: Storage,
        held: HeldScopes,
        namespaces: Namespaces,
        publishing: Publishing,
        schedules: Schedules,
    ) -> None:
        self._storage = storage
        self._held = held
        self._namespaces = namespaces
        self._publishing = publishing
        self._schedules = schedules
        self.handover = ScopeHandover(
            storage, held, NAMESPACES, load=self._load, unload=self._close, served=self._serve
        )
        self.end_sessions: SessionsEnd = no_sessions
        self._chores = (
            Housekeeping([namespaces.referrals.refer], _HANDED_OVER_SECONDS),
            Housekeeping([namespaces.fire_handed_over], _HANDED_OVER_SECONDS),
            Housekeeping([namespaces.retention.reclaim], _RECLAIM_SECONDS),
            Housekeeping([namespaces.expire_unused], _QUEUE_CHECK_SECONDS),
        )

    async def load_all(self) -> None:
        """In a broker that is alone."""
        await self._namespaces.load_all()
        self._schedules.load_all(
            self._storage.take_state(Space.SCHEDULE), list(self._storage.topics.values())
        )

    def start(self) -> None:
        self._schedules.start_all()
        for chore in self._chores:
            chore.start()

    async def _load(self, scope: Scope, shared: SharedState) -> None:
        try:
            await self._storage.take_namespaces(scope)
            await self._namespaces.load(scope, shared)
            self._schedules.load(scope, await shared.of_space(Space.SCHEDULE))
        except BaseException:
            self._unload(scope)
            raise

    def _serve(self, scope: Scope) -> None:
        self._storage.serve_namespaces(scope)
        self._namespaces.serve(scope)
        self._schedules.start(scope)

    async def _close(self, scope: Scope) -> None:
        await self.end_sessions(scope)
        await self._held.unused(scope)
        await self._namespaces.undisturbed(scope)
        await self._schedules.stop(scope)
        await self._publishing.written()
        try:
            await self._namespaces.close(scope)
        finally:
            self._unload(scope)
        await self._storage.barrier()

    def _unload(self, scope: Scope) -> None:
        self._storage.leave_namespaces(scope)
        self._namespaces.unload(scope)
        self._schedules.unload(scope)

    async def stop(self) -> None:
        """No more requests come."""
        for chore in self._chores:
            await chore.stop()
        await self._schedules.stop_all()
        await self._publishing.written()
        await self._namespaces.close_all()
