"""The scopes that a broker takes and releases, under its lease."""

import asyncio
import logging
from collections.abc import Callable, Iterable

from posthouse.model.scopes import Scope
from posthouse.storage.shared.database import CommitsLost, Database, DatabaseAway, LeaseLost
from posthouse.storage.shared.membership.lease import Lease
from posthouse.storage.shared.membership.link import Link
from posthouse.storage.shared.membership.loss_watch import Seen

log = logging.getLogger(__name__)

_STATEMENT_SECONDS = 4.0
"""More than the timeout of the locks: a takeover waits for commits in flight."""


class Scopes:
    """Of one lease; `lease.scopes` has those that are held. Owned by the event loop.

    If the database does not answer, it may have done what was asked: both calls can be repeated, and `take`
    also takes what this broker holds already.
    """

    def __init__(self, database: Database, lease: Lease, seen: Callable[[], Seen]) -> None:
        """`seen` is what the database must show at least."""
        # Not on the connection of the lease: a renewal must not wait for a takeover.
        self._link = Link(database, "scopes", seconds=_STATEMENT_SECONDS)
        self._seen = seen
        self._one_at_a_time = asyncio.Lock()
        self.lease = lease

    async def take(self, scopes: Iterable[Scope]) -> frozenset[Scope]:
        """Those that are free, and those of brokers whose lease is over, which fences these brokers. Returns
        what was taken; none if the lease of this broker is lost or its own time is over.

        Raises DatabaseAway; CommitsLost if the database shows less than was seen, or has lost commits before.
        """
        names = sorted(scope.name for scope in scopes)
        lease = self.lease
        async with self._one_at_a_time:
            if lease.is_lost:
                return frozenset()
            try:
                found = await self._link.ask(
                    "SELECT posthouse.take_scopes(%s, %s, %s, %s)",
                    [lease.incarnation, lease.epoch, names, self._seen().to_json()],
                    doing="taking scopes",
                )
            except LeaseLost as error:
                lease.fenced(str(error))
                return frozenset()
        if "loss" in found:
            raise CommitsLost(found["loss"])
        if lease.is_lost:
            return frozenset()
        taken = {Scope(name): epoch for name, epoch in found["taken"].items()}
        lease.scopes.update(taken)
        return frozenset(taken)

    async def release(self, scope: Scope) -> None:
        """Let other brokers take it at once. This one must have stopped using it: from here on its commits
        for the scope are refused. No-op if it does not hold it. Raises DatabaseAway."""
        lease = self.lease
        lease.scopes.pop(scope, None)
        async with self._one_at_a_time:
            if not lease.is_lost:
                await self._link.ask(
                    "SELECT posthouse.release_scope(%s, %s, %s)",
                    [lease.incarnation, lease.epoch, scope.name],
                    doing=f"releasing the scope {scope}",
                )

    async def give_up(self, scope: Scope) -> None:
        """As `release`. If the database is away, the scope is released with the lease."""
        try:
            await self.release(scope)
        except DatabaseAway as error:
            log.warning("the scope %s could not be released: %s", scope, error)

    def abandon(self, why: str) -> None:
        """End the lease: this broker cannot give up a scope in good order."""
        self.lease.fenced(why)

    async def close(self) -> None:
        await self._link.close()
