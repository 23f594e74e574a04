"""Deletes objects that are not used any more.

*Doomed* objects have a row, but nothing lies in them. They are deleted after a grace that is longer than any
read of a broker, and not while a *hold* has them: readers outside of the brokers may take hours. First the
object goes, then its row: after a crash in between, the next turn deletes it again.

*Orphans* have no row: they were uploaded, but never committed. Keys begin with the hour of the upload, and
the database refuses rows for objects of long ago (objects/names.py). So an object without a row is an orphan
once its hour is a day old, by the database's clock. `sweep` says up to which hour orphans are deleted.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from posthouse.storage.shared.database import DatabaseConnection, meaning
from posthouse.storage.shared.held_lease import HeldLease
from posthouse.storage.shared.housekeeping.housekeeping_metrics import HousekeepingMetrics
from posthouse.storage.shared.housekeeping.object_port import HousekeptObjects
from posthouse.storage.shared.objects.names import hour_prefix

_OBJECTS_AT_ONCE = 500
_HOURS_AT_ONCE = 48
"""Hours of a turn that are searched for orphans."""

_HOUR = timedelta(hours=1)

_DOOMED = """
SELECT id, key, doomed_at FROM object
WHERE doomed_at <= now() - make_interval(secs => %s)
  AND (doomed_at, id) > (coalesce(%s::timestamptz, '-infinity'), %s)
ORDER BY doomed_at, id LIMIT %s
"""
_NEXT_HOURS = """
SELECT coalesce(
    (SELECT done_to FROM sweep WHERE name = 'orphans'),
    -- A new storage: nothing was uploaded before it was made.
    date_trunc('hour', coalesce((SELECT created_at FROM cluster), now()), 'UTC') - interval '1 day'),
    date_trunc('hour', now(), 'UTC') - interval '1 day'
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GarbageSettings:
    grace_seconds: float = 3600.0


class Garbage:
    def __init__(
        self,
        connect: Callable[[], Awaitable[DatabaseConnection]],
        objects: HousekeptObjects,
        lease: HeldLease,
        metrics: HousekeepingMetrics,
        settings: GarbageSettings | None = None,
    ) -> None:
        self._connect = connect
        self._objects = objects
        self._lease = lease
        self._metrics = metrics
        self._settings = settings or GarbageSettings()

    async def run_once(self) -> None:
        async with await self._connect() as connection:
            async with meaning("removing holds that are over"):
                await connection.execute("SELECT remove_expired_holds()")
            await self._delete_doomed(connection)
            await self._delete_orphans(connection)
            async with meaning("counting doomed objects"):
                found = await connection.execute("SELECT count(*) FROM object WHERE doomed_at IS NOT NULL")
                [(self._metrics.doomed_objects,)] = await found.fetchall()

    async def _delete_doomed(self, connection: DatabaseConnection) -> None:
        behind: tuple[datetime | None, int] = None, 0
        while True:
            async with meaning("looking for doomed objects"):
                found = await connection.execute(
                    _DOOMED, [self._settings.grace_seconds, *behind, _OBJECTS_AT_ONCE]
                )
                rows = await found.fetchall()
                ids = [id for id, _, _ in rows]
                found = await connection.execute("SELECT held_objects(%s::bigint[])", [ids])
                held = {row[0] for row in await found.fetchall()}
            await self._delete(connection, {id: key for id, key, _ in rows if id not in held})
            if len(rows) < _OBJECTS_AT_ONCE:
                return
            behind = rows[-1][2], rows[-1][0]

    async def _delete(self, connection: DatabaseConnection, doomed: Mapping[int, str]) -> None:
        if not doomed:
            return
        await self._objects.delete(list(doomed.values()))
        async with meaning("forgetting deleted objects"):
            await connection.execute(
                "SELECT forget_objects(%s, %s, %s)",
                [self._lease.incarnation, self._lease.epoch, list(doomed)],
            )
        self._metrics.deleted_objects += len(doomed)

    async def _delete_orphans(self, connection: DatabaseConnection) -> None:
        async with meaning("looking for orphans"):
            [(hour, end)] = await (await connection.execute(_NEXT_HOURS)).fetchall()
        for _ in range(_HOURS_AT_ONCE):
            if hour >= end:
                return
            await self._delete_orphans_of(connection, hour)
            hour += _HOUR
            async with meaning("looking for orphans"), connection.transaction():
                await connection.execute(
                    "SELECT check_coordinator(%s, %s)", [self._lease.incarnation, self._lease.epoch]
                )
                await connection.execute(
                    "INSERT INTO sweep (name, done_to) VALUES ('orphans', %s) "
                    "ON CONFLICT (name) DO UPDATE SET done_to = excluded.done_to",
                    [hour],
                )

    async def _delete_orphans_of(self, connection: DatabaseConnection, hour: datetime) -> None:
        keys: list[str] = []
        async for each in self._objects.list(hour_prefix(int(hour.timestamp() * 1000))):
            keys.append(each.key)
            if len(keys) == _OBJECTS_AT_ONCE:
                await self._delete_unknown(connection, keys)
                keys = []
        if keys:
            await self._delete_unknown(connection, keys)

    async def _delete_unknown(self, connection: DatabaseConnection, keys: Sequence[str]) -> None:
        async with meaning("looking for orphans"):
            found = await connection.execute(
                "SELECT k.key FROM unnest(%s::text[]) AS k(key) "
                "WHERE NOT EXISTS (SELECT FROM object o WHERE o.key = k.key)",
                [list(keys)],
            )
            orphans = [row[0] for row in await found.fetchall()]
        if orphans:
            await self._objects.delete(orphans)
            self._metrics.deleted_orphans += len(orphans)
