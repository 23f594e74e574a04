"""The lease while a storage is imported: no broker can take it until the import is finished."""

from dataclasses import dataclass
from uuid import UUID, uuid4

import psycopg

from posthouse.model.errors import Unavailable
from posthouse.storage.shared.database import DatabaseConnection, meaning
from posthouse.storage.shared.registry import LIVE_SECONDS

_REFUSED = "PH005"


class TransferRefused(Unavailable):
    """The storage is not in a state in which it can be imported or exported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportLease:
    incarnation: UUID
    epoch: int
    is_lost: bool = False

    def fenced(self) -> None:
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
