"""Slots: the parts of the tables of runs and inline data, which are used in turn and truncated as a whole."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from psycopg.errors import LockNotAvailable

from posthouse.storage.shared.database import DatabaseConnection, meaning
from posthouse.storage.shared.held_lease import HeldLease
from posthouse.storage.shared.housekeeping.housekeeping_metrics import HousekeepingMetrics

log = logging.getLogger(__name__)

_OPEN = """
SELECT extract(epoch FROM now() - changed_at),
       pg_total_relation_size(('run_' || number)::regclass)
       + pg_total_relation_size(('inline_data_' || number)::regclass),
       EXISTS (SELECT FROM run WHERE slot = number)
FROM slot WHERE state = 'open'
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotSettings:
    open_seconds: float = 120.0
    open_bytes: int = 256 * 1024 * 1024


class Slots:
    def __init__(
        self,
        connect: Callable[[], Awaitable[DatabaseConnection]],
        lease: HeldLease,
        metrics: HousekeepingMetrics,
        settings: SlotSettings | None = None,
    ) -> None:
        self._connect = connect
        self._lease = lease
        self._metrics = metrics
        self._settings = settings or SlotSettings()

    async def run_once(self) -> None:
        """Truncate the slots that are not used any more, and open the next one if that is due."""
        async with await self._connect() as connection:
            async with meaning("truncating slots"):
                await self._truncate(connection)
            async with meaning("opening the next slot"):
                await self._open_next(connection)
            async with meaning("counting slots"):
                found = await connection.execute("SELECT count(*) FROM slot WHERE state = 'free'")
                row = await found.fetchone()
                self._metrics.free_slots = 0 if row is None else row[0]

    async def _truncate(self, connection: DatabaseConnection) -> None:
        found = await connection.execute("SELECT number FROM slot WHERE state = 'closed' ORDER BY changed_at")
        for [number] in await found.fetchall():
            try:
                done = await connection.execute(
                    "SELECT truncate_slot(%s, %s, %s::smallint)",
                    [self._lease.incarnation, self._lease.epoch, number],
                )
            except LockNotAvailable:
                log.debug("slot %d is being read and is truncated in the next turn", number)
                continue
            row = await done.fetchone()
            self._metrics.truncated_slots += bool(row and row[0])

    async def _open_next(self, connection: DatabaseConnection) -> None:
        """If that is due."""
        [(seconds, size, is_used)] = await (await connection.execute(_OPEN)).fetchall()
        settings = self._settings
        if is_used and (seconds >= settings.open_seconds or size >= settings.open_bytes):
            await connection.execute(
                "SELECT open_next_slot(%s, %s)", [self._lease.incarnation, self._lease.epoch]
            )
