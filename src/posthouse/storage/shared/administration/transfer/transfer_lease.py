"""The exclusive lease while a storage is copied: no broker can take one, also while an import is
interrupted."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID, uuid4

import psycopg

from posthouse.model.clock import Clock
from posthouse.model.errors import Unavailable
from posthouse.model.scopes import Scope
from posthouse.storage.shared.database import Database, DatabaseConnection, meaning
from posthouse.storage.shared.membership.lease import Lease, LeaseTimes, take_exclusive_lease
from posthouse.storage.shared.membership.registry import LIVE_SECONDS

PATIENCE_SECONDS = LeaseTimes().seconds + 2
"""Longer than a lease lasts after its holder was killed."""
_REFUSED = "PH005"
_AGAIN_SECONDS = 0.5
_USED = """
SELECT EXISTS (SELECT FROM broker WHERE seen_at > clock_timestamp() - make_interval(secs => %s)),
       EXISTS (SELECT FROM local_import WHERE finished_at IS NULL)
"""


class TransferRefused(Unavailable):
    """The storage is not in a state in which it can be imported or exported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportLease:
    incarnation: UUID
    epoch: int
    is_lost: bool = False

    def holds(self, scope: Scope) -> bool:
        return True

    def count_commits(self, acknowledged: Callable[[], int]) -> None:
        """No broker compares them: an import that failed is repeated."""

    def fenced(self, why: str) -> None:
        """A second import goes on with the work of this one; its next statement fails."""


async def begin_import(connection: DatabaseConnection, source: str) -> ImportLease:
    """Raises TransferRefused unless the storage is empty and not used, or this import was interrupted."""
    incarnation = uuid4()
    try:
        found = await connection.execute(
            "SELECT begin_import(%s, %s, %s)", [incarnation, source, LIVE_SECONDS]
        )
    except psycopg.Error as error:
        if error.sqlstate == _REFUSED:
            raise TransferRefused(error.diag.message_primary or str(error)) from None
        raise
    [(epoch,)] = await found.fetchall()
    return ImportLease(incarnation=incarnation, epoch=epoch)


async def finish_import(connection: DatabaseConnection, lease: ImportLease) -> None:
    async with meaning("finishing the import"):
        await connection.execute("SELECT finish_import(%s, %s)", [lease.incarnation, lease.epoch])


async def take_lease_to_export(
    connection: DatabaseConnection, database: Database, clock: Clock, patience_seconds: float
) -> Lease:
    """Waits for the end of the lease of an export or a broker that was killed. Raises TransferRefused."""
    deadline = clock.monotonic() + patience_seconds
    while True:
        found = await connection.execute(_USED, [LIVE_SECONDS])
        [(has_brokers, is_importing)] = await found.fetchall()
        if is_importing:
            raise TransferRefused("an import into this storage is unfinished; finish it first")
        lease = await take_exclusive_lease(database, uuid4(), clock=clock, live_seconds=LIVE_SECONDS)
        if lease is not None:
            lease.keep()
            return lease
        if has_brokers or clock.monotonic() > deadline:
            raise TransferRefused("a broker uses this storage; stop all of its brokers first")
        await asyncio.sleep(_AGAIN_SECONDS)
