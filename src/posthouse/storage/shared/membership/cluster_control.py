"""What operators want of the cluster: stored in the database, and followed by the brokers."""

from typing import Any

from posthouse.model.errors import NotFound
from posthouse.model.scopes import Scope
from posthouse.storage.shared.database import Database
from posthouse.storage.shared.membership.link import Link

_STATEMENT_SECONDS = 5.0


class DatabaseControl:
    """Connects for each call: they are rare."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def drain(self, broker: str, *, is_draining: bool) -> None:
        """Raises NotFound and DatabaseAway."""
        if not await self._ask("posthouse.drain_broker(%s, %s)", [broker, is_draining], "draining a broker"):
            raise NotFound(
                f"no broker has registered as {broker!r}; posthouse broker list shows the live ones"
            )

    async def want(self, scope: Scope, broker: str | None) -> None:
        """Raises NotFound and DatabaseAway."""
        if not await self._ask("posthouse.want_scope(%s, %s)", [scope.name, broker], "moving a scope"):
            raise NotFound(f"there is no scope {scope}, or no broker has registered as {broker!r}")

    async def _ask(self, call: str, values: list[Any], doing: str) -> bool:
        link = Link(self._database, "control", seconds=_STATEMENT_SECONDS)
        try:
            return bool(await link.ask(f"SELECT {call}", values, doing=doing))
        finally:
            await link.close()
