"""What operators do with a shared storage, apart from a broker: create, migrate, look, verify, copy."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg

from posthouse.model.clock import SystemClock
from posthouse.model.errors import InvalidConfig
from posthouse.storage.shared.administration.privileges import grant_to_broker
from posthouse.storage.shared.administration.status import StorageStatus as StorageStatus
from posthouse.storage.shared.administration.status import read_status
from posthouse.storage.shared.administration.transfer.exporting import export_directory
from posthouse.storage.shared.administration.transfer.importing import TransferProgress as TransferProgress
from posthouse.storage.shared.administration.transfer.importing import TransferReport as TransferReport
from posthouse.storage.shared.administration.transfer.importing import import_directory
from posthouse.storage.shared.administration.verify import SharedFinding as SharedFinding
from posthouse.storage.shared.administration.verify import SharedTally, SharedVerification
from posthouse.storage.shared.database import Database, DatabaseConnection, meaning, one_line
from posthouse.storage.shared.membership.identity import cluster_identity
from posthouse.storage.shared.membership.inspection import check_server_version, safety_warnings
from posthouse.storage.shared.migrations import applied_schema, check_schema, migrate
from posthouse.storage.shared.objects.opening import open_object_store
from posthouse.storage.shared.objects.store import ObjectStore
from posthouse.storage.shared.stores import SharedStores

_STATEMENT_SECONDS = 300.0
"""Operators wait longer than brokers."""
_SKIPPED_PRODUCER_IDS = 2**27
"""More than lost commits can have assigned: as many as the broker skips after a loss of its own
(`broker/transactions/producer_ids.py`)."""
_OBJECT_SECONDS = 30.0
_CACHE_BYTES = 64 * 1024 * 1024


@asynccontextmanager
async def opened_objects(url: str) -> AsyncIterator[ObjectStore]:
    store = open_object_store(url, timeout=_OBJECT_SECONDS)
    try:
        yield store
    finally:
        await store.close()


async def connected(database: Database) -> DatabaseConnection:
    return await database.connect("storage command", statement_seconds=_STATEMENT_SECONDS)


async def init_storage(database_url: str, objects_url: str, role: str | None) -> tuple[list[int], list[str]]:
    """Create the tables, check the object store, and grant `role` what a broker needs.

    Returns the versions that were applied, and warnings.
    """
    async with opened_objects(objects_url) as store:
        await store.check()
    database = Database(database_url)
    async with await connected(database) as connection:
        await check_server_version(connection, database.name)
        done = await _migrate(connection, database.name)
        await cluster_identity(connection)
        if role is not None:
            await grant_to_broker(connection, role)
        return done, await safety_warnings(connection, database.name)


async def migrate_storage(database_url: str) -> tuple[list[int], int]:
    """Apply missing versions of the tables. Returns them, and the version that the database now has."""
    database = Database(database_url)
    async with await connected(database) as connection:
        done = await _migrate(connection, database.name)
        async with meaning("reading the version of the tables"):
            applied = await applied_schema(connection)
    check_schema(applied)
    return done, applied.version


async def _migrate(connection: DatabaseConnection, name: str) -> list[int]:
    try:
        return await migrate(connection)
    except psycopg.errors.InsufficientPrivilege as error:
        raise InvalidConfig(
            f"this role may not create tables in PostgreSQL at {name} ({one_line(error)}); use the owner of "
            "the database, or one with the right CREATE on it"
        ) from error
    except psycopg.Error as error:
        raise InvalidConfig(
            f"the tables could not be created in PostgreSQL at {name}: {one_line(error)}"
        ) from error


async def storage_status(database_url: str) -> StorageStatus:
    async with await connected(Database(database_url)) as connection:
        return await read_status(connection)


async def verify_storage(
    database_url: str,
    objects_url: str,
    *,
    on_total: Callable[[int], None],
    on_progress: Callable[[int], None],
    on_finding: Callable[[SharedFinding], None],
) -> SharedTally:
    """Read and check everything. Works while a broker writes."""
    database = Database(database_url)
    async with await connected(database) as connection, meaning("reading the version of the tables"):
        check_schema(await applied_schema(connection))
    async with opened_objects(objects_url) as store:
        verification = SharedVerification(lambda: connected(database), store, on_progress)
        on_total(await verification.total_bytes())
        async for finding in verification.findings():
            on_finding(finding)
        return verification.tally


async def accept_loss(database_url: str) -> int:
    """Let brokers go on with a database that has lost commits. Returns how often that was said."""
    async with await connected(Database(database_url)) as connection, meaning("accepting the loss"):
        check_schema(await applied_schema(connection))
        found = await connection.execute(
            "WITH skipped AS ("
            "UPDATE state SET value = int8send(int8_of(value) + %s) WHERE space = 4) "
            "UPDATE cluster SET confirmed_losses = confirmed_losses + 1, loss = NULL, lost_at = NULL "
            "RETURNING confirmed_losses",
            [_SKIPPED_PRODUCER_IDS],
        )
        row = await found.fetchone()
    if row is None:
        raise InvalidConfig("no broker has used this database yet, so it has lost nothing")
    return int(row[0])


@asynccontextmanager
async def _stores(database_url: str, objects_url: str) -> AsyncIterator[SharedStores]:
    stores = SharedStores(
        database=database_url,
        objects=objects_url,
        clock=SystemClock(),
        cache_bytes=_CACHE_BYTES,
        inline_bytes=0,
    )
    try:
        yield stores
    finally:
        await stores.close()


async def import_storage(
    directory: Path, database_url: str, objects_url: str, progress: TransferProgress
) -> TransferReport:
    """Bring a local data directory into an empty shared storage."""
    async with _stores(database_url, objects_url) as stores:
        return await import_directory(directory, stores, SystemClock(), progress)


async def export_storage(
    directory: Path, database_url: str, objects_url: str, progress: TransferProgress
) -> TransferReport:
    """Copy a shared storage to a new local data directory."""
    async with _stores(database_url, objects_url) as stores:
        return await export_directory(directory, stores, SystemClock(), progress)
