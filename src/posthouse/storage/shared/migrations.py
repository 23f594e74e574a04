"""Versions of the database schema: each is a directory of SQL files, applied once, in one transaction.

Everything lives in the schema `posthouse` of the database. `posthouse.schema_version` says which versions are
applied, and which releases can use them: a broker works with the version that it was made for, and with later
ones for as long as they say so. So a new version is applied while brokers run, and the brokers are replaced
afterwards, one after the other.

The first file of a version says from which version on releases can use it:

    -- compatible from version 3

Without that line only releases that know the version can. Such a version may add tables, columns with a
default and functions, and replace functions whose arguments and results stay: older brokers go on with what
they know. It must not lock a table for long.
"""

import asyncio
import re
import time
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import psycopg
from psycopg import sql

from posthouse.model.errors import InvalidConfig, Unavailable

SCHEMA = "posthouse"
_LOCK = 0x706F7374
"""An advisory lock, so that brokers that start together do not migrate together."""
_COMPATIBLE = re.compile(r"^-- compatible from version ([0-9]+)$", re.MULTILINE)
_LOCK_TIMEOUT = "500ms"
"""Less than PostgreSQL waits before it ends a deadlock: the migration gives way, not a commit."""
_PAUSE_SECONDS = 0.5
_LONGEST_SECONDS = 60.0
_LIVE_SECONDS = 10
"""A broker that was seen since may still use the tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    version: int
    compatible_from: int
    """The oldest version that a release may have been made for, if it is to use this one."""
    statements: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedSchema:
    """What the database has."""

    version: int
    """0 if there is none."""
    compatible_from: int


def migrations() -> list[Migration]:
    """All that this release knows, oldest first."""
    root = files("posthouse.storage.shared").joinpath("schema")
    found = []
    for each in sorted(root.iterdir(), key=lambda each: each.name):
        if each.is_dir() and each.name.isdigit():
            parts = sorted(
                (part for part in each.iterdir() if part.name.endswith(".sql")), key=lambda p: p.name
            )
            text = "\n".join(part.read_text() for part in parts)
            version, said = int(each.name), _COMPATIBLE.search(text)
            compatible_from = version if said is None else int(said[1])
            found.append(Migration(version=version, compatible_from=compatible_from, statements=text))
    return found


def newest_version() -> int:
    return migrations()[-1].version


async def applied_schema(connection: psycopg.AsyncConnection[Any]) -> AppliedSchema:
    found = await connection.execute("SELECT to_regclass('posthouse.schema_version') IS NOT NULL")
    row = await found.fetchone()
    if row is not None and row[0]:
        found = await connection.execute(
            "SELECT version, compatible_from FROM posthouse.schema_version ORDER BY version DESC LIMIT 1"
        )
        row = await found.fetchone()
        if row is not None:
            return AppliedSchema(version=row[0], compatible_from=row[1])
    return AppliedSchema(version=0, compatible_from=0)


async def migrate(connection: psycopg.AsyncConnection[Any]) -> list[int]:
    """Apply the versions that are missing, in one transaction; returns them. Needs the right to create.

    Raises Unavailable if brokers run that could not use the new versions, or if a table stays locked.
    """
    deadline = time.monotonic() + _LONGEST_SECONDS
    while True:
        try:
            return await _migrate(connection)
        except psycopg.errors.LockNotAvailable as error:
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"the tables were in use for {_LONGEST_SECONDS:g} s, and were not changed; try again "
                    "when there is less traffic"
                ) from error
            await asyncio.sleep(_PAUSE_SECONDS)


async def _migrate(connection: psycopg.AsyncConnection[Any]) -> list[int]:
    done = []
    async with connection.transaction():
        # Others that migrate may take long.
        await connection.execute("SET LOCAL lock_timeout = 0")
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        await connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'".encode())
        await connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(SCHEMA)))
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS posthouse.schema_version (version integer PRIMARY KEY, "
            "compatible_from integer NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
        )
        await connection.execute("SET LOCAL search_path = posthouse")
        known = (await applied_schema(connection)).version
        missing = [each for each in migrations() if each.version > known]
        if known and missing:
            await _exclude_older(connection, missing[-1])
        for each in missing:
            await connection.execute(each.statements.encode())
            await connection.execute(
                "INSERT INTO schema_version (version, compatible_from) VALUES (%s, %s)",
                [each.version, each.compatible_from],
            )
            done.append(each.version)
    return done


async def _exclude_older(connection: psycopg.AsyncConnection[Any], migration: Migration) -> None:
    """Raises Unavailable if brokers run that were made for a version which is too old. Others cannot start
    meanwhile: they wait to register, and are refused then."""
    await connection.execute("LOCK TABLE broker IN SHARE ROW EXCLUSIVE MODE")
    found = await connection.execute(
        "SELECT name, version FROM broker WHERE schema_version < %s "
        "AND seen_at > clock_timestamp() - make_interval(secs => %s) ORDER BY name",
        [migration.compatible_from, _LIVE_SECONDS],
    )
    running = [f"{name} (release {release})" for name, release in await found.fetchall()]
    if running:
        raise Unavailable(
            f"version {migration.version} of Posthouse's tables cannot be used by brokers that run: "
            f"{', '.join(running)}; stop them first, or install a release in between"
        )
    await connection.execute(
        "SELECT fence(incarnation) FROM broker WHERE schema_version < %s", [migration.compatible_from]
    )


def check_schema(applied: AppliedSchema) -> None:
    """Raise unless this release can use the tables that the database has."""
    newest = newest_version()
    if applied.version < newest:
        raise InvalidConfig(
            f"the database has version {applied.version} of Posthouse's tables, this release needs {newest}; "
            "run 'posthouse storage migrate' with a role that may create tables"
        )
    if applied.compatible_from > newest:
        raise Unavailable(
            f"the database has version {applied.version} of Posthouse's tables, which needs releases that "
            f"know version {applied.compatible_from}; this release knows {newest}: install the release that "
            "the other brokers have"
        )
