"""What a broker checks of PostgreSQL at its start: version, tables, and how safely it stores."""

import logging
from typing import Any

import psycopg

from posthouse.model.errors import InvalidConfig
from posthouse.storage.shared.database import Database, DatabaseConnection, meaning, one_line
from posthouse.storage.shared.migrations import applied_schema, check_schema, migrate, newest_version

log = logging.getLogger(__name__)

_OLDEST = 140_000
_SECONDS_TO_MIGRATE = 60.0


async def inspect(database: Database) -> list[str]:
    """Prepare the tables and return warnings, as sentences. Raises InvalidConfig if it cannot be used."""
    connection = await database.connect("start", statement_seconds=_SECONDS_TO_MIGRATE)
    try:
        await check_server_version(connection, database.name)
        await _prepare_tables(connection, database.name)
        return await safety_warnings(connection, database.name)
    finally:
        await connection.close()


async def _setting(connection: DatabaseConnection, name: str) -> Any:
    async with meaning(f"reading the setting {name}"):
        found = await connection.execute("SELECT current_setting(%s)", [name])
        row = await found.fetchone()
    assert row is not None
    return row[0]


async def check_server_version(connection: DatabaseConnection, name: str) -> None:
    version = int(await _setting(connection, "server_version_num"))
    if version < _OLDEST:
        raise InvalidConfig(
            f"PostgreSQL at {name} has version {version // 10_000}, Posthouse needs {_OLDEST // 10_000} "
            "or newer"
        )


async def _prepare_tables(connection: DatabaseConnection, name: str) -> None:
    async with meaning("reading the version of the tables"):
        applied = await applied_schema(connection)
    if applied.version < newest_version():
        try:
            done = await migrate(connection)
        except psycopg.errors.InsufficientPrivilege as error:
            raise InvalidConfig(
                f"PostgreSQL at {name} has no tables of Posthouse's version {newest_version()}, and this "
                f"role may not create them ({one_line(error)}); run 'posthouse storage init' with one "
                "that may"
            ) from error
        except psycopg.Error as error:
            raise InvalidConfig(
                f"the tables of Posthouse in PostgreSQL at {name} could not be created: {one_line(error)}"
            ) from error
        if done:
            log.info("created the tables of Posthouse in PostgreSQL at %s, version %d", name, done[-1])
        async with meaning("reading the version of the tables"):
            applied = await applied_schema(connection)
    check_schema(applied)


async def safety_warnings(connection: DatabaseConnection, name: str) -> list[str]:
    found = []
    if not await _setting(connection, "synchronous_standby_names"):
        found.append(
            f"PostgreSQL at {name} has no synchronous standby (synchronous_standby_names is empty): if its "
            "disk is lost, or an asynchronous standby is promoted, acknowledged records are lost"
        )
    unsafe = [each for each in ("fsync", "full_page_writes") if await _setting(connection, each) != "on"]
    if unsafe:
        found.append(
            f"PostgreSQL at {name} runs with {' and '.join(unsafe)} off: a power failure can destroy "
            "acknowledged records"
        )
    return found
