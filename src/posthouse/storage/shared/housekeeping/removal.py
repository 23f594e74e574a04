"""Removes rows that are not needed any more: segments below the start of their log, deleted topics, and old
changes of definitions.

Every step is one short transaction, and all can be repeated. Objects that lose their last use are doomed;
`Garbage` deletes them.
"""

from collections.abc import Awaitable, Callable

from posthouse.storage.shared.database import DatabaseConnection, meaning
from posthouse.storage.shared.held_lease import HeldLease
from posthouse.storage.shared.housekeeping.housekeeping_metrics import HousekeepingMetrics

_ROWS_AT_ONCE = 1000
_CHANGE_SECONDS = 3600.0
"""A broker that has not asked for changes for so long reads all definitions again."""


class Removal:
    def __init__(
        self,
        connect: Callable[[], Awaitable[DatabaseConnection]],
        lease: HeldLease,
        metrics: HousekeepingMetrics,
        *,
        rows_at_once: int = _ROWS_AT_ONCE,
        change_seconds: float = _CHANGE_SECONDS,
    ) -> None:
        self._connect = connect
        self._lease = lease
        self._metrics = metrics
        self._rows_at_once = rows_at_once
        self._change_seconds = change_seconds

    async def run_once(self) -> None:
        async with await self._connect() as connection:
            async with meaning("removing segments below the start of their log"):
                while removed := await self._step(connection, "remove_trimmed_segments", self._rows_at_once):
                    self._metrics.removed_segments += removed
            async with meaning("removing deleted topics"):
                while await self._step(connection, "remove_deleted_topics", self._rows_at_once):
                    pass
            async with meaning("removing old changes"):
                await self._step(connection, "remove_changes", self._change_seconds)

    async def _step(self, connection: DatabaseConnection, function: str, limit: float) -> int:
        found = await connection.execute(
            f"SELECT {function}(%s, %s, %s)".encode(),
            [self._lease.incarnation, self._lease.epoch, limit],
        )
        [(rows,)] = await found.fetchall()
        return int(rows)
